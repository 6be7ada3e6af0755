# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your first fusion
#
# A network is a graph of operators. A compiler that makes one GPU kernel of each operator lets
# every kernel read its inputs from global memory and write its result back to it. *Operator
# fusion* makes one kernel of several operators, so that what flows between them stays on the
# chip. This tutorial shows how the package `tvm_fusion` does it, one step at a time:
#
# 1. why the traffic to global memory matters, in numbers;
# 2. the decision which operators to fuse, on a graph made by hand;
# 3. the same on a Relax module of Apache TVM, with the module shown after each pass;
# 4. why a pair of operators was *not* fused, and what limits change;
# 5. CUDA source without a GPU, and a check of the result on the CPU.
#
# You need TVM and `tvm_fusion`, and no GPU. You should have seen a Relax module before.

# %%
import numpy as np
import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_fusion as tf
from tvm_fusion.analysis import traffic
from tvm_fusion.device import Device

# %% [markdown]
# ## 1. Why memory traffic matters
#
# Take `sum(relu(x) * y + z)` over the rows of matrices with 512 x 1024 elements of float32. Four
# operators, each with a kernel of its own. Count the bytes that each kernel reads and writes:

# %%
full = 512 * 1024 * 4  # one matrix
rows = 512 * 4  # one number for each row

unfused = {
    "relu": full + full,  # reads x, writes a
    "multiply": 2 * full + full,  # reads a and y, writes b
    "add": 2 * full + full,  # reads b and z, writes c
    "sum": full + rows,  # reads c, writes s
}
fused = 3 * full + rows  # reads x, y and z, writes s
print(f"unfused {sum(unfused.values()) / 1e6:.1f} MB, fused {fused / 1e6:.1f} MB")
print(f"{sum(unfused.values()) / fused:.1f} times less")

# %% [markdown]
# The arithmetic is the same in both cases: four operations for each element, one of which is a
# comparison. An NVIDIA A100 does about 10 single-precision operations in the time in which it
# moves one byte, so all of these kernels wait for memory. Three times less traffic is close to
# three times less time, before the launches that are saved as well.
#
# The package counts the same way. Here are the four operators as a Relax module. `LegalizeOps`,
# which is TVM's own pass, replaces each operator by a call of a *PrimFunc*, a function of loops
# over tensors. `traffic.measure` counts one PrimFunc: every tensor that it touches in global
# memory moves once.


# %%
@I.ir_module
class Rows:
    @R.function
    def main(
        x: R.Tensor((512, 1024), "float32"),
        y: R.Tensor((512, 1024), "float32"),
        z: R.Tensor((512, 1024), "float32"),
    ):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.multiply(a, y)
            c = R.add(b, z)
            s = R.sum(c, axis=1)
            R.output(s)
        return s


legal = relax.transform.LegalizeOps()(Rows)
print(legal["main"].script())
for gvar, func in legal.functions.items():
    if isinstance(func, tirx.PrimFunc):
        moved = traffic.measure(func)
        print(f"{gvar.name_hint:10} {moved.kernels} kernel, {moved.bytes:>9} bytes")
        assert moved.bytes == unfused[gvar.name_hint]

# %% [markdown]
# ## 2. Deciding on a graph
#
# Which operators become one kernel is decided by a *policy*. A policy sees neither Relax nor TIR,
# only a graph of operators with a *kind* each. You can make such a graph by hand:

# %%
ELEMENTWISE, REDUCTION = tf.OpKind.ELEMENTWISE, tf.OpKind.REDUCTION

chain = tf.DataflowGraph.build(
    {"relu": ELEMENTWISE, "multiply": ELEMENTWISE, "add": ELEMENTWISE, "sum": REDUCTION},
    edges=[("relu", "multiply"), ("multiply", "add"), ("add", "sum")],
    outputs=["sum"],
)


def decide(policy, graph):
    partition = policy.partition(graph, tf.Limits(), Device())
    for group in partition.groups:
        print("group:", *(graph.ops[op].name for op in group.ops))
    for decision in partition.decisions:
        reason = decision.reason
        print(f"  {decision.producer} -> {decision.consumer}: {reason.code}, {reason.message}")


decide(tf.policy.SingleChain(), chain)

# %% [markdown]
# `single_chain` is the classic rule. It starts at an elementwise operator and follows the chain
# as long as each operator has exactly one reader and that reader reads exactly one operator. A
# reduction may end a chain; nothing is added behind it. The tensors `y` and `z` do not count:
# they are inputs of the function, and no operator makes them.
#
# Now let `relu` be read twice: `sum(relu(x) * sigmoid(relu(x)))`.

# %%
diamond = tf.DataflowGraph.build(
    {"relu": ELEMENTWISE, "sigmoid": ELEMENTWISE, "multiply": ELEMENTWISE, "sum": REDUCTION},
    edges=[
        ("relu", "sigmoid"),
        ("relu", "multiply"),
        ("sigmoid", "multiply"),
        ("multiply", "sum"),
    ],
    outputs=["sum"],
)
decide(tf.policy.SingleChain(), diamond)

# %% [markdown]
# Every pair of a producer and a consumer has a decision with a reason. The chain is cut at both
# ends of the diamond: `relu` has two readers, and `multiply` reads two operators. Yet one kernel
# could compute it all, since both paths out of `relu` meet again in `multiply`. The graph knows:
# `multiply` is the nearest *post-dominator* of `relu`, the first operator that every path from
# `relu` goes through. The policy `dominator` fuses an operator with everything on its paths to its
# post-dominator, if the kinds fit:

# %%
for op, meet in zip(diamond.ops, diamond.post_dominators, strict=True):
    print(f"{op.name}: paths meet in", None if meet is None else diamond.ops[meet].name)
decide(tf.policy.Dominator(), diamond)

# %% [markdown]
# ## 3. Step by step on a Relax module
#
# Back to the module `legal` of part 1. The first pass writes down what every PrimFunc is. It reads
# the loops and the index expressions, never the name. (A function that is printed alone is called
# `main`, whatever its name.)

# %%
annotated = tf.transform.AnnotateOpKind()(legal)
print(annotated["multiply"].script())

# %% [markdown]
# The default policy is a third one, `stitch`: it fuses whatever one kernel can be planned for, and
# asks a model of the GPU whether that pays. It needs the loops of the operators, so it works on
# modules and not on graphs like the ones above.
#
# `FuseOps` asks the policy and turns each group into a private Relax function with the attribute
# `Primitive`. It needs to know the GPU: every group is scheduled on a copy, for the current
# target, and one that does not come out as a single kernel within the limits of that GPU is cut.

# %%
target = tvm.target.Target("nvidia/nvidia-a100", host="llvm")
with target:
    grouped = tf.transform.FuseOps()(annotated)
print(grouped["main"].script())
print(grouped["fused_relu_multiply_add_sum"].script())

# %% [markdown]
# TVM's own `FuseTIR` makes one PrimFunc of each such function. It puts the loops of its members
# one behind the other; what was a tensor of the network is now a buffer inside of the function.

# %%
fused = relax.transform.FuseTIR()(grouped)
print(fused.script())

# %% [markdown]
# `Schedule` turns the loops into one CUDA kernel. The four loop nests are gone: the elementwise
# ones are computed where the reduction reads them, rows were divided among thread blocks, and the
# points of a row among threads, which load four neighbours at a time. The attributes
# `tvm_fusion.group` and `op_pattern` mark a finished group: TVM's later passes, and a second run of
# ours, leave it alone. And the bytes are those that we computed by hand.

# %%
with target:
    scheduled = tf.transform.Schedule()(fused)
print("\n".join(scheduled["fused_relu_multiply_add_sum"].script().splitlines()[:22]), "\n...\n")

for name, mod in {"before": legal, "after": scheduled}.items():
    print(f"{name:6} {traffic.total(mod).kernels} kernels, {traffic.total(mod).bytes:>8} bytes")
assert traffic.total(scheduled).bytes == 3 * full + rows

# %% [markdown]
# ## 4. Why was this not fused?
#
# `OperatorFusion` is a single pass that does all of the steps above. Let it run on a network that
# it cannot make one kernel of, and record its decisions with `tf.record()`:


# %%
@I.ir_module
class Attention:
    @R.function
    def main(
        x: R.Tensor((64, 128), "float32"),
        w: R.Tensor((128, 128), "float32"),
        mask: R.Tensor((64, 128), "float32"),
    ):
        with R.dataflow():
            scores = R.matmul(x, w)
            scaled = R.multiply(scores, R.const(0.125, "float32"))
            masked = R.add(scaled, mask)
            weights = R.nn.softmax(masked)
            dropped = R.multiply(weights, R.const(0.9, "float32"))
            R.output(dropped)
        return dropped


def fuse(mod, **options):
    passes = [relax.transform.LegalizeOps(), tf.OperatorFusion(**options)]
    with target, tf.record() as trace:
        tvm.transform.Sequential(passes)(mod)
    for group in trace.groups:
        print(f"{group.name}: {', '.join(group.ops)} ({trace.rules[group.name]})")
    for decision in trace.decisions:
        if not decision.fused:
            print(f"  {decision.producer} -> {decision.consumer}: {decision.reason.message}")


fuse(Attention)

# %% [markdown]
# Two groups. The matrix product takes the elementwise operators behind it, and so does softmax.
# The pair between the groups was not fused: a matrix product is computed in tiles, and no thread
# block has a whole row of it, which softmax would need. Without the product, all of it is one
# kernel that reads its input once and keeps each row in registers:


# %%
@I.ir_module
class MaskedSoftmax:
    @R.function
    def main(scores: R.Tensor((64, 128), "float32"), mask: R.Tensor((64, 128), "float32")):
        with R.dataflow():
            scaled = R.multiply(scores, R.const(0.125, "float32"))
            masked = R.add(scaled, mask)
            weights = R.nn.softmax(masked)
            dropped = R.multiply(weights, R.const(0.9, "float32"))
            R.output(dropped)
        return dropped


fuse(MaskedSoftmax)

# %% [markdown]
# The classic rule makes less of the same network. Matrix products and softmax are barriers to it:

# %%
fuse(Attention, policy="single_chain")

# %% [markdown]
# ### Limits
#
# `Limits` sets the budgets of a group. `max_depth` caps the operators in it. `shared_memory_bytes`
# is the budget of a thread block: its threads put their partial results of a reduction together
# there. With 16 bytes there is no room for them, and TVM's fallback rule has its turn, which gives
# each thread a row of its own: one kernel too, but a slow one. `no_fuse` leaves an operator alone
# altogether.

# %%
fuse(Rows, limits=tf.Limits(max_depth=3))
fuse(Rows, limits=tf.Limits(shared_memory_bytes=16))
fuse(Rows, no_fuse=["add"])

# %% [markdown]
# ## 5. CUDA source, and a check on the CPU
#
# TVM generates CUDA source without a GPU and without NVIDIA's compiler. `tvm.compile` runs TVM's
# default pipeline, which leaves our kernels as they are. One kernel comes out. Its first lines show
# the fusion: each thread loads four neighbours of each input at once, computes `max(x, 0) * y + z`
# and adds it up. No array for `a`, `b` or `c` exists. The sum over a row follows, with shuffles
# inside of a warp and a little shared memory between the warps.

# %%
executable = tvm.compile(scheduled, target)
source = tf.codegen.cuda_source(executable)
print(tf.codegen.parse_kernels(source))
body = source[source.rindex('extern "C"') :].splitlines()
print("\n".join(line for line in body[:40] if "alignas" not in line), "\n  ...")

# %% [markdown]
# Is it right? To run the same groups on the CPU, compile the module as it was before `Schedule`,
# with the groups marked as finished: under a CPU target that is all that `Schedule` does. Compare
# with a build without any fusion, on random data. (TVM keeps the order of the sum here, so the two
# may agree to the last bit.)

# %%
cpu = tvm.target.Target("llvm")
with cpu:
    marked = tf.transform.Schedule()(fused)

generator = np.random.default_rng(0)
inputs = [generator.standard_normal((512, 1024)).astype("float32") for _ in range(3)]


def run(executable):
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, inputs)).numpy()


with tvm.transform.PassContext(disabled_pass=["FuseOps"]):
    expected = run(tvm.compile(Rows, cpu))
result = run(tvm.compile(marked, cpu))

difference = np.abs(result - expected).max() / np.abs(expected).max()
print(f"largest difference, relative to the largest result: {difference:.1e}")
assert difference < 1e-5

# %% [markdown]
# ## Where to go from here
#
# * In a build of your own, add `tf.OperatorFusion()` behind `LegalizeOps`, or name the pipeline:
#   `tvm.compile(mod, target, relax_pipeline="tvm_fusion")`.
# * `tvm-fusion compile MODEL` does the same for an ONNX file, on the command line.
# * [policies.md](../docs/policies.md) states the rules of the policies and lists all reasons.
# * [kernels.md](../docs/kernels.md) tells how a group becomes one kernel.
# * [architecture.md](../docs/architecture.md) tells how the package is built.
