"""Groups for the planner and the writer: modules as one PrimFunc, named groups, random groups."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import tvm
import tvm_ffi
from conftest import QUICK_LLVM, make_cuda_target
from support import flatten, legalize
from tvm import relax, s_tir, tirx
from tvm.relax import op

import tvm_fusion as tf
from tvm_fusion import emulator
from tvm_fusion.analysis.nest_reader import read_nests
from tvm_fusion.analysis.primfunc import contracts
from tvm_fusion.planning import KernelPlan, plan_kernel
from tvm_fusion.schedule.writer import write_kernel

#: Shared memory that a block gets without asking.
SHARED = 48 * 1024

ORDERS = ({"order": "forward"}, {"order": "reverse"}, {"order": "random", "seed": 1})

GROUP = "group"


# -- modules and groups -------------------------------------------------------------------------


def module(build: Callable[..., Any], *params: tuple[Any, ...], dtype: str = "float32") -> Any:
    """A module whose `main` returns what `build` makes of its parameters.

    A parameter is its shape, in which a str is a symbolic extent; a dtype may stand behind it.
    `build` gets a function that emits an expression, then the parameters.
    """
    symbols: dict[str, tirx.Var] = {}
    made = []
    for number, param in enumerate(params):
        shape, own = (param if isinstance(param[-1], str) and isinstance(param[0], tuple)
                      else (param, dtype))  # fmt: skip
        extents = [symbols.setdefault(e, tirx.Var(e, "int64")) if isinstance(e, str) else e
                   for e in shape]  # fmt: skip
        made.append(relax.Var(f"x{number}", relax.TensorType(extents, own)))
    builder = relax.BlockBuilder()
    with builder.function("main", made):
        with builder.dataflow():
            results = build(builder.emit, *made)
            several = isinstance(results, list)
            outputs = [builder.emit_output(r) for r in (results if several else [results])]
        builder.emit_func_output(relax.Tuple(outputs) if several else outputs[0])
    return builder.get()


def prepared(mod: tvm.IRModule) -> tvm.IRModule:
    """Legalized, with scalar constants as immediates, as groups are made of it."""
    passes = [tf.transform.InlineScalarConstants(), relax.transform.CanonicalizeBindings()]
    return tvm.ir.transform.Sequential(passes)(legalize(mod))


def as_group(mod: tvm.IRModule) -> tvm.IRModule:
    """A prepared module with all of `main` in one PrimFunc, named `group`."""
    main = mod["main"]
    others = {g: f for g, f in mod.functions.items() if g.name_hint != "main"}
    builder = relax.BlockBuilder(tvm.IRModule(others))
    attrs = tvm.ir.make_node("ir.DictAttrs", Primitive=True)
    primitive = relax.Function(main.params, main.body, main.ret_ty, is_pure=True, attrs=attrs)
    name = builder.add_func(primitive, GROUP)
    params = [relax.Var(p.name, p.ty) for p in main.params]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(relax.Call(name, params))
        builder.emit_func_output(out)
    passes = [relax.transform.FuseTIR(), relax.transform.DeadCodeElimination()]
    return tvm.ir.transform.Sequential(passes)(builder.get())


def group_func(mod: tvm.IRModule) -> tirx.PrimFunc:
    """All of `main` of a module as one PrimFunc."""
    return as_group(prepared(mod))[GROUP]


@dataclass(frozen=True)
class Written:
    """A group whose kernel was written.

    Parameters
    ----------
    mod : IRModule
        Every op by itself.
    fused : IRModule
        `main` calls the written kernel.
    func, kernel : PrimFunc
        The group before and after.
    plan : KernelPlan
        Its plan.
    """

    mod: tvm.IRModule
    fused: tvm.IRModule
    func: tirx.PrimFunc
    kernel: tirx.PrimFunc
    plan: KernelPlan


def write(mod: tvm.IRModule, shared: int = SHARED) -> Written:
    """Plan and write all of `main` as one kernel; raises CannotPlan."""
    ready = prepared(mod)
    return write_prepared(ready, as_group(ready), shared)


def write_prepared(ready: tvm.IRModule, grouped: tvm.IRModule, shared: int = SHARED) -> Written:
    func = grouped[GROUP]
    plan = plan_kernel(read_nests(func), shared)
    kernel = write_kernel(func, plan)
    s_tir.Schedule(tvm.IRModule({"main": kernel}))  # raises where the kernel is ill-formed
    return with_kernel(ready, grouped, kernel, plan)


def with_kernel(
    ready: tvm.IRModule, grouped: tvm.IRModule, kernel: tirx.PrimFunc, plan: KernelPlan
) -> Written:
    fused = tvm.IRModule(dict(grouped.functions), attrs=grouped.attrs)
    func = grouped[GROUP]
    fused[fused.get_global_var(GROUP)] = kernel
    return Written(ready, fused, func, kernel, plan)


# -- named groups -------------------------------------------------------------------------------


def _softmax(e: Any, x: Any) -> Any:
    return e(op.nn.softmax(x, -1))


def _masked_softmax(e: Any, x: Any, mask: Any) -> Any:
    scaled = e(op.multiply(x, relax.const(0.125, "float32")))
    return e(op.nn.softmax(e(op.add(scaled, mask)), -1))


def _where_softmax(e: Any, x: Any, mask: Any) -> Any:
    return e(op.nn.softmax(e(op.where(mask, x, relax.const(-1e4, str(x.ty.dtype)))), -1))


def _layer_norm(e: Any, x: Any, w: Any, b: Any) -> Any:
    return e(op.nn.layer_norm(x, w, b, [-1]))


def _add_layer_norm(e: Any, x: Any, r: Any, w: Any, b: Any) -> Any:
    return e(op.nn.layer_norm(e(op.add(x, r)), w, b, [-1]))


def _rms_norm(e: Any, x: Any, w: Any) -> Any:
    return e(op.nn.rms_norm(x, w, [-1]))


def _add_rms_norm(e: Any, x: Any, r: Any, w: Any) -> Any:
    total = e(op.add(x, r))
    return [total, e(op.nn.rms_norm(total, w, [-1]))]


def _mean_subtract(e: Any, x: Any) -> Any:
    return e(op.subtract(x, e(op.mean(x, [-1], keepdims=True))))


def _group_norm_silu(e: Any, x: Any, w: Any, b: Any) -> Any:
    """As exporters write it: statistics on one shape, scale and bias on another."""
    n, c, height, width = (int(extent) for extent in x.ty.shape)
    groups = e(op.reshape(x, (n, c // 4, 4 * height * width)))
    centered = e(op.subtract(groups, e(op.mean(groups, [-1], keepdims=True))))
    variance = e(op.mean(e(op.multiply(centered, centered)), [-1], keepdims=True))
    scale = e(op.rsqrt(e(op.add(variance, relax.const(1e-5, "float32")))))
    normal = e(op.reshape(e(op.multiply(centered, scale)), (n, c, height, width)))
    scaled = e(op.multiply(normal, e(op.reshape(w, (1, c, 1, 1)))))
    return e(op.nn.silu(e(op.add(scaled, e(op.reshape(b, (1, c, 1, 1)))))))


def _rope(e: Any, x: Any, cosine: Any, sine: Any) -> Any:
    width = int(x.ty.shape[-1])
    low = e(op.strided_slice(x, [3], [0], [width // 2]))
    high = e(op.strided_slice(x, [3], [width // 2], [width]))
    rotated = e(op.concat([e(op.negative(high)), low], 3))
    return e(op.add(e(op.multiply(x, cosine)), e(op.multiply(rotated, sine))))


def _swiglu(e: Any, x: Any) -> Any:
    halves = e(op.split(x, 2, -1))
    gate = e(op.nn.silu(e(relax.TupleGetItem(halves, 0))))
    return e(op.multiply(gate, e(relax.TupleGetItem(halves, 1))))


def _column_sum(e: Any, x: Any, b: Any) -> Any:
    return e(op.nn.relu(e(op.add(e(op.sum(x, [0])), b))))


def _squeeze_excite(e: Any, x: Any) -> Any:
    return e(op.multiply(x, e(op.sigmoid(e(op.mean(x, [2, 3], keepdims=True))))))


def _bias_gelu(e: Any, x: Any, b: Any) -> Any:
    return e(op.nn.gelu(e(op.add(x, b))))


def _broadcasts(e: Any, x: Any, rows: Any, columns: Any) -> Any:
    total = e(op.add(e(op.multiply(x, rows)), columns))
    return e(op.nn.relu(e(op.multiply(e(op.add(total, rows)), columns))))


def _embedding_norm(e: Any, ids: Any, table: Any, positions: Any, w: Any, b: Any) -> Any:
    rows = e(op.take(table, ids, axis=0, mode="clip"))
    return e(op.nn.layer_norm(e(op.add(rows, positions)), w, b, [-1]))


def _softmax_transpose(e: Any, x: Any) -> Any:
    return e(op.permute_dims(e(op.nn.softmax(x, -1)), [0, 2, 1, 3]))


def _heads(e: Any, x: Any, w: Any) -> Any:
    b, s, c = (int(extent) for extent in x.ty.shape)
    heads = e(op.reshape(x, (b, s, c // 64, 64)))
    return e(op.permute_dims(e(op.nn.rms_norm(heads, w, [-1])), [0, 2, 1, 3]))


def _split_three(e: Any, x: Any, b: Any) -> Any:
    parts = e(op.split(e(op.add(x, b)), 3, -1))
    return [e(op.nn.relu(e(relax.TupleGetItem(parts, i)))) for i in range(3)]


def _concat_three(e: Any, x: Any, y: Any, z: Any) -> Any:
    return e(op.nn.silu(e(op.concat([e(op.nn.relu(x)), y, e(op.negative(z))], -1))))


def _scan(e: Any, decay: Any, update: Any, weight: Any) -> Any:
    """A selective scan, unrolled over time: decay and update (b, t, c, n), weight (b, t, 1, n)."""
    steps = int(decay.ty.shape[1])

    def at(x: Any, t: int) -> Any:
        b, _, c, n = (int(extent) for extent in x.ty.shape)
        return e(op.reshape(e(op.strided_slice(x, [1], [t], [t + 1])), (b, c, n)))

    state, results = at(update, 0), []
    for t in range(steps):
        if t:
            state = e(op.add(e(op.multiply(at(decay, t), state)), at(update, t)))
        total = e(op.sum(e(op.multiply(state, at(weight, t))), [-1], keepdims=False))
        results.append(e(op.expand_dims(total, 1)))
    return e(op.concat(results, 1))


#: Groups that are planned as one kernel: how they are built, and their parameters.
GROUPS: dict[str, Callable[[], tvm.IRModule]] = {
    "softmax": lambda: module(_softmax, (64, 1000)),
    "softmax_heads_mask": lambda: module(_masked_softmax, (2, 6, 32, 64), (2, 1, 1, 64)),
    "softmax_causal_mask": lambda: module(_where_softmax, (2, 4, 32, 32), ((32, 32), "bool")),
    "layer_norm": lambda: module(_layer_norm, (24, 768), (768,), (768,)),
    "add_layer_norm": lambda: module(_add_layer_norm, (24, 768), (24, 768), (768,), (768,)),
    "add_rms_norm": lambda: module(
        _add_rms_norm, (32, 2048), (32, 2048), (2048,), dtype="float16"
    ),
    "group_norm_silu": lambda: module(_group_norm_silu, (2, 32, 16, 16), (32,), (32,)),
    "rope": lambda: module(_rope, (2, 4, 32, 64), (32, 64), (32, 64)),
    "swiglu": lambda: module(_swiglu, (48, 512)),
    "softmax_axis_1": lambda: module(lambda e, x: e(op.nn.softmax(x, 1)), (4, 24, 16, 32)),
    "column_sum": lambda: module(_column_sum, (1000, 256), (256,)),
    "mean_max": lambda: module(lambda e, x: [e(op.mean(x, [-1])), e(op.max(x, [-1]))], (64, 1024)),
    "squeeze_excite": lambda: module(_squeeze_excite, (2, 16, 14, 14)),
    "bias_gelu": lambda: module(_bias_gelu, (64, 1536), (1536,)),
    "broadcasts": lambda: module(_broadcasts, (64, 192), (64, 1), (1, 192)),
    "embedding_norm": lambda: module(
        _embedding_norm, ((16,), "int32"), (100, 256), (16, 256), (256,), (256,)
    ),
    "softmax_transpose": lambda: module(_softmax_transpose, (2, 4, 32, 64)),
    "heads": lambda: module(_heads, (2, 16, 256), (64,)),
    "split_three": lambda: module(_split_three, (32, 768), (768,)),
    "concat_three": lambda: module(_concat_three, (32, 96), (32, 32), (32, 64)),
    "scan": lambda: module(_scan, (2, 4, 32, 16), (2, 4, 32, 16), (2, 4, 1, 16)),
}  # fmt: skip


def row_groups(rows: int | str, length: int | str, dtype: str) -> dict[str, tvm.IRModule]:
    """Groups over rows of one length."""
    x, w = (rows, length), (length,)
    made = {
        "softmax": module(_softmax, x, dtype=dtype),
        "rms_norm": module(_rms_norm, x, w, dtype=dtype),
        "add_norm": module(_add_rms_norm, x, x, w, dtype=dtype),
        "masked_softmax": module(_where_softmax, x, (w, "bool"), dtype=dtype),
        "mean_subtract": module(_mean_subtract, x, dtype=dtype),
    }
    if dtype != "bfloat16":  # of which TVM has no layer_norm
        made["layer_norm"] = module(_layer_norm, x, w, w, dtype=dtype)
    return made


def extents_of(kernel: tirx.PrimFunc) -> list[list[int]]:
    """Extents of blockIdx.x, threadIdx.x and threadIdx.y in a kernel, each as often as bound."""
    found: dict[str, list[int]] = {"blockIdx.x": [], "threadIdx.x": [], "threadIdx.y": []}

    def visit(node: Any) -> None:
        if node.kind == tirx.ForKind.THREAD_BINDING:
            found[node.thread_binding.thread_tag].append(int(node.extent))

    tvm_ffi.structural_walk(kernel.body, (tirx.For, visit))
    return list(found.values())


# -- running ------------------------------------------------------------------------------------


def symbols_of(mod: tvm.IRModule) -> list[str]:
    """Names of the symbolic extents of the parameters of `main`."""
    extents = [e for p in mod["main"].params for e in p.ty.shape]
    return list(dict.fromkeys(e.name for e in extents if isinstance(e, tirx.Var)))


def arrays_for(mod: tvm.IRModule, values: dict[str, int], seed: int = 0) -> list[np.ndarray]:
    """Random arguments for `main`: normal floats, small non-negative integers."""
    rng = np.random.default_rng(seed)
    made = []
    for param in mod["main"].params:
        shape = [values[e.name] if isinstance(e, tirx.Var) else int(e) for e in param.ty.shape]
        kind = str(param.ty.dtype)
        if kind == "bool":
            made.append(rng.random(shape) > 0.3)
        elif "int" in kind:
            made.append(rng.integers(0, 3, shape).astype(kind))
        else:
            data = rng.standard_normal(shape, dtype="float32")
            made.append(data.astype(np.dtype(getattr(ml_dtypes, kind, kind))))
    return made


def expected(mod: tvm.IRModule, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What `main` gives on the CPU, every op by itself."""
    with tvm.transform.PassContext(disabled_pass=["FuseOps"]):
        executable = tvm.compile(mod, tvm.target.Target(QUICK_LLVM))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return flatten(machine["main"](*[tvm.runtime.tensor(a) for a in arrays]))


def compile_written(written: Written, arch: str = "sm_80") -> Any:
    """A virtual machine for the emulated GPU, with buffers of exact sizes."""
    executable = tvm.compile(written.fused, make_cuda_target(arch))
    return relax.VirtualMachine(executable, tvm.cuda(0), memory_cfg="naive")


def launch(machine: Any, arrays: Sequence[np.ndarray], **settings: Any) -> list[np.ndarray]:
    """Run `main` on the emulator; it has to take a single launch."""
    device = tvm.cuda(0)
    held = [tvm.runtime.tensor(a, device) for a in arrays]
    before = emulator.launches()
    with emulator.configure(**settings):
        results = flatten(machine["main"](*held))
    assert emulator.launches() == before + 1
    return results


def profiled(machine: Any, arrays: Sequence[np.ndarray]) -> Any:
    """The profile of the one kernel of `main`."""
    device = tvm.cuda(0)
    held = [tvm.runtime.tensor(a, device) for a in arrays]
    with emulator.configure(profile=True):
        machine["main"](*held)
    (kernel,) = emulator.profile().kernels
    return kernel


def side_by_side(modules: dict[str, tvm.IRModule]) -> tvm.IRModule:
    """One module with the `main` of each under the name it has here: compiled at once."""
    functions = {}
    for key, mod in modules.items():
        new = {}
        for name in mod.functions:
            is_main = name.name_hint == "main"
            new[name] = tvm.ir.GlobalVar(key if is_main else f"{name.name_hint}_{key}")
            relax.expr._update_type(new[name], name.ty)

        def renamed(name: Any, new: dict[Any, Any] = new) -> Any:
            return new.get(name, name)

        for name, func in mod.functions.items():
            if isinstance(func, relax.Function):
                func = tvm_ffi.structural_map(func, [(tvm.ir.GlobalVar, renamed)])
            functions[new[name]] = func.with_attr("global_symbol", new[name].name_hint)
    return tvm.IRModule(functions)


# -- parts of a module --------------------------------------------------------------------------


def part(rng: random.Random, mod: tvm.IRModule, share: float = 1.0) -> tvm.IRModule | None:
    """A random connected set of the ops of a prepared `main` as a module of its own.

    What the set reads from outside of it becomes parameters; what is read outside of it, or
    nowhere, becomes results. No path between two of its ops leaves it, and none of its ops
    contracts. None where no such set was found, or where its parameters do not tell a symbol.
    """
    main = mod["main"]
    bindings = [b for block in main.body.blocks for b in block.bindings]
    numbers = {b.var: i for i, b in enumerate(bindings)}
    reads = [[numbers[v] for v in dict.fromkeys(_free(b.value)) if v in numbers] for b in bindings]
    able = [_is_able(mod, b.value) for b in bindings]
    wanted = max(1, round(share * sum(able)))
    start = rng.choice([i for i, a in enumerate(able) if a] or [-1])
    if start < 0:
        return None
    chosen = {start}
    while len(chosen) < wanted:
        near = {i for i, own in enumerate(reads) for j in own if (i in chosen) != (j in chosen)}
        near |= {j for i in chosen for j in reads[i]}
        near = {i for i in near if able[i] and i not in chosen}
        if not near:
            break
        grown = _convex(reads, chosen | {rng.choice(sorted(near))})
        if not all(able[i] for i in grown):
            break
        chosen = grown
    chosen = _with_items(bindings, reads, _convex(reads, chosen))
    if not all(able[i] for i in chosen):
        return None
    return _module_of(mod, [bindings[i] for i in sorted(chosen)], bindings, chosen)


def _free(expr: Any) -> list[Any]:
    return list(relax.analysis.free_vars(expr))


def _is_able(mod: tvm.IRModule, value: Any) -> bool:
    if isinstance(value, relax.TupleGetItem):
        return True
    if not isinstance(value, relax.Call) or getattr(value.op, "name", "") != "relax.call_tir":
        return False
    return not contracts(mod[value.args[0]])


def _convex(reads: list[list[int]], chosen: set[int]) -> set[int]:
    """With all ops on paths between the chosen ones."""
    below = set(chosen)  # reached from the chosen ones
    for i, own in enumerate(reads):
        if any(j in below for j in own):
            below.add(i)
    above = set(chosen)
    for i in reversed(range(len(reads))):
        if i in above:
            above.update(reads[i])
    return below & above


def _with_items(bindings: Any, reads: list[list[int]], chosen: set[int]) -> set[int]:
    """With the op of each tuple item, and all items of each op that makes a tuple."""
    chosen = set(chosen)
    for i in sorted(chosen):
        if isinstance(bindings[i].value, relax.TupleGetItem):
            chosen.update(reads[i])
    for i, own in enumerate(reads):
        if isinstance(bindings[i].value, relax.TupleGetItem) and set(own) & chosen:
            chosen.add(i)
    return _convex(reads, chosen)


def _module_of(mod: Any, inner: Any, bindings: Any, chosen: set[int]) -> tvm.IRModule | None:
    made = {b.var for b in inner}
    params = list(dict.fromkeys(v for b in inner for v in _free(b.value) if v not in made))
    if any(not isinstance(v.ty, relax.TensorType) for v in params):
        return None
    outside = [b.value for i, b in enumerate(bindings) if i not in chosen]
    read = {v for value in outside for v in _free(value)}
    inside = {v for b in inner for v in _free(b.value)}
    results = [v for v in made if (v in read or v not in inside)
               and isinstance(v.ty, relax.TensorType)]  # fmt: skip
    order = [b.var for b in inner]
    results = sorted(results, key=order.index)
    known = {e for p in params for e in p.ty.shape if isinstance(e, tirx.Var)}
    types = [p.ty for p in params] + [b.var.ty for b in inner]
    used = {v for ty in types for v in relax.analysis.tir_vars_in_type(ty)}
    if not results or not used <= known:
        return None
    builder = relax.BlockBuilder(
        tvm.IRModule({g: f for g, f in mod.functions.items() if g.name_hint != "main"})
    )
    new = {p: relax.Var(f"x{i}", p.ty) for i, p in enumerate(params)}
    with builder.function("main", list(new.values())):
        with builder.dataflow():
            for binding in inner:
                new[binding.var] = builder.emit(_replaced(binding.value, new))
            outputs = [builder.emit_output(new[v]) for v in results]
        builder.emit_func_output(relax.Tuple(outputs) if len(outputs) > 1 else outputs[0])
    return relax.transform.DeadCodeElimination()(builder.get())


def _replaced(value: Any, new: dict[Any, Any]) -> Any:
    if isinstance(value, relax.TupleGetItem):
        return relax.TupleGetItem(new[value.tuple_value], value.index)
    args = [new.get(a, a) for a in value.args[1].fields]
    rest = list(value.args[2:])
    return relax.Call(
        value.op, [value.args[0], relax.Tuple(args), *rest], value.attrs, value.ty_args
    )


# -- random modules -----------------------------------------------------------------------------

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 32, 33, 64, 130, 197)
MOST_ELEMENTS = 1 << 14

#: Whether axes are reversed. TVM lowers some divisions of the indices of that wrongly.
REVERSE = False


def random_group_module(seed: int, dtype: str = "float32", most_ops: int = 14) -> tvm.IRModule:
    """A `main` of random ops on odd shapes, in a third of all cases with a symbolic batch."""
    return _Maker(random.Random(seed), dtype).make(most_ops)


class _Maker:
    """Emits random ops; every value stays of magnitude about one."""

    def __init__(self, rng: random.Random, dtype: str) -> None:
        self.rng = rng
        self.dtype = dtype
        self.builder = relax.BlockBuilder()
        self.values: list[Any] = []

    def make(self, most_ops: int) -> tvm.IRModule:
        params = self._params()
        with self.builder.function("main", params):
            with self.builder.dataflow():
                self.values = list(params)
                for _ in range(self.rng.randint(2, most_ops)):
                    self._step()
                made = self.values[len(params) :]
                kept = [made[-1], *(v for v in made if self.rng.random() < 0.15)]
                outputs = [self.builder.emit_output(v) for v in dict.fromkeys(kept)]
            self.builder.emit_func_output(relax.Tuple(outputs))
        return self.builder.get()

    def _params(self) -> list[relax.Var]:
        rng = self.rng
        rank = rng.choice([1, 2, 2, 3, 3, 3, 4])
        shape: list[Any] = []
        while len(shape) < rank:
            extent = rng.choice(EXTENTS)
            if extent * _static_size(shape) <= MOST_ELEMENTS // 4:
                shape.append(extent)
            elif _static_size(shape) * 2 > MOST_ELEMENTS // 4:
                shape.append(1)
        if rank > 1 and rng.random() < 0.35:
            shape[0] = tirx.Var("n", "int64")
            if rank > 2 and rng.random() < 0.3:
                shape[1] = tirx.Var("m", "int64")
        shapes = [shape, shape]
        for _ in range(3):
            shapes.append([1 if rng.random() < 0.4 else e for e in shape])
        shapes += [shape[i:] for i in range(1, rank)]
        order = rng.sample(range(rank), rank)
        shapes.append([shape[i] for i in order])
        dtypes = [self.dtype] * len(shapes)
        params = [
            relax.Var(f"p{i}", relax.TensorType(s, d))
            for i, (s, d) in enumerate(zip(shapes, dtypes, strict=True))
        ]
        if not isinstance(shape[0], tirx.Var):
            params.append(relax.Var("ids", relax.TensorType([shape[0]], "int32")))
        return params

    def _step(self) -> None:
        rng = self.rng
        recent = self.values[-3:] if rng.random() < 0.6 else self.values
        x = rng.choice(recent)
        if not _is_float(x):
            x = rng.choice([v for v in self.values if _is_float(v)])
        makers = [
            self._unary, self._binary, self._binary, self._select, self._reduce, self._reduce,
            self._reshape, self._reshape, self._transpose, self._slice, self._split, self._concat,
            self._softmax, self._norm, self._take, self._odd,
        ]  # fmt: skip
        for maker in rng.sample(makers, len(makers)):
            made = maker(x)
            if made is None:
                continue
            for value in made if isinstance(made, list) else [made]:
                self._emit(value)
            return

    def _emit(self, value: Any) -> None:
        var = self.builder.emit(value)
        if isinstance(var.ty, relax.TupleType):
            self.values += [
                self.builder.emit(relax.TupleGetItem(var, i)) for i in range(len(var.ty.fields))
            ]
        else:
            self.values.append(var)

    # Each makes an expression, or a list of them, or None where it does not apply.

    def _unary(self, x: Any) -> Any:
        which = [op.tanh, op.sigmoid, op.nn.relu, op.nn.gelu, op.nn.silu, op.negative, op.abs]
        return self.rng.choice(which)(x)

    def _binary(self, x: Any) -> Any:
        fitting = [v for v in self.values if _is_like(v, x) and _meets(v, x)]
        other = self.rng.choice(fitting)
        pair = (x, other) if self.rng.random() < 0.5 else (other, x)
        return self.rng.choice([op.add, op.subtract, op.multiply, op.maximum])(*pair)

    def _select(self, x: Any) -> Any:
        fitting = [v for v in self.values if _is_like(v, x) and _meets(v, x)]
        other = self.rng.choice(fitting)
        if self.rng.random() < 0.5:
            return op.where(op.greater(other, relax.const(0.0, _dtype(x))), x, other)
        return op.where(op.less(other, x), x, relax.const(-0.5, _dtype(x)))

    def _reduce(self, x: Any) -> Any:
        rank = len(_shape(x))
        axes = [i for i in range(rank) if _static(_shape(x)[i])]
        if not axes:
            return None
        if len(axes) > 2:
            count = self.rng.choice([1, 1, 1, 2, len(axes)]) % 5
        else:
            count = self.rng.randint(1, len(axes))
        axes = sorted(self.rng.sample(axes, count))
        keep = self.rng.random() < 0.5
        which = self.rng.choice([op.sum, op.mean, op.max, op.min, op.variance, op.max])
        size = _static_size([_shape(x)[a] for a in axes])
        if which is op.sum:
            total = self.builder.emit(op.sum(x, axes, keepdims=keep))
            return op.multiply(total, relax.const(1.0 / max(1.0, size**0.5), _dtype(x)))
        return which(x, axes, keepdims=keep)

    def _reshape(self, x: Any) -> Any:
        shape, rng = list(_shape(x)), self.rng
        for _ in range(rng.randint(1, 3)):
            way = rng.randrange(4)
            if way == 0 and len(shape) > 1:
                i = rng.randrange(len(shape) - 1)
                shape[i : i + 2] = [shape[i] * shape[i + 1]]
            elif way == 1 and shape and len(shape) < 5:
                i = rng.randrange(len(shape))
                factors = [f for f in (2, 3, 4, 5, 7, 8, 16) if _static(shape[i])
                           and int(shape[i]) % f == 0 and int(shape[i]) > f]  # fmt: skip
                if factors:
                    f = rng.choice(factors)
                    inner = f if rng.random() < 0.5 else int(shape[i]) // f
                    shape[i : i + 1] = [int(shape[i]) // inner, inner]
            elif way == 2 and len(shape) < 5:
                shape.insert(rng.randint(0, len(shape)), 1)
            elif way == 3:
                ones = [i for i, e in enumerate(shape) if _static(e) and int(e) == 1]
                if ones and len(shape) > 1:
                    del shape[rng.choice(ones)]
        if [str(e) for e in shape] == [str(e) for e in _shape(x)]:
            return None
        return op.reshape(x, relax.ShapeExpr(shape))

    def _transpose(self, x: Any) -> Any:
        rank = len(_shape(x))
        return op.permute_dims(x, self.rng.sample(range(rank), rank)) if rank > 1 else None

    def _axis(self, x: Any, least: int) -> int | None:
        axes = [i for i, e in enumerate(_shape(x)) if _static(e) and int(e) >= least]
        return self.rng.choice(axes) if axes else None

    def _slice(self, x: Any) -> Any:
        axis = self._axis(x, 2)
        if axis is None:
            return None
        extent = int(_shape(x)[axis])
        begin = self.rng.choice([0, 1, extent // 2, self.rng.randrange(extent)])
        end = self.rng.choice([extent, extent, self.rng.randint(begin + 1, extent)])
        stride = [self.rng.choice([1, 1, 1, 2])]
        return op.strided_slice(x, [axis], [begin], [end], stride)

    def _split(self, x: Any) -> Any:
        axis = self._axis(x, 2)
        if axis is None:
            return None
        extent = int(_shape(x)[axis])
        counts = [c for c in (2, 3, 4) if extent % c == 0]
        if counts and self.rng.random() < 0.7:
            return op.split(x, self.rng.choice(counts), axis)
        return op.split(x, sorted(self.rng.sample(range(1, extent), min(extent - 1, 2))), axis)

    def _concat(self, x: Any) -> Any:
        shape = _shape(x)
        if not shape or _size(x) > MOST_ELEMENTS:
            return None
        axis = self.rng.randrange(len(shape))
        if not _static(shape[axis]):
            return None
        fitting = [
            v for v in self.values
            if _is_like(v, x) and len(_shape(v)) == len(shape) and all(
                (i == axis and _static(a)) or str(a) == str(b)
                for i, (a, b) in enumerate(zip(_shape(v), shape, strict=True)))
        ]  # fmt: skip
        parts = [x, *(self.rng.choice(fitting) for _ in range(self.rng.choice([1, 1, 2])))]
        self.rng.shuffle(parts)
        return op.concat(parts, axis)

    def _softmax(self, x: Any) -> Any:
        axis = self._axis(x, 1)
        if axis is None:
            return None
        return self.rng.choice([op.nn.softmax, op.nn.softmax, op.nn.log_softmax])(x, axis)

    def _norm(self, x: Any) -> Any:
        shape = _shape(x)
        if not shape or not _static(shape[-1]) or int(shape[-1]) < 2:
            return None
        scale = [v for v in self.values if _is_like(v, x)
                 and [str(e) for e in _shape(v)] == [str(shape[-1])]]  # fmt: skip
        if not scale:
            return None
        if self.rng.random() < 0.5:
            return op.nn.rms_norm(x, self.rng.choice(scale), [-1], epsilon=0.1)
        pair = self.rng.choice(scale), self.rng.choice(scale)
        return op.nn.layer_norm(x, *pair, axes=[-1], epsilon=0.1)

    def _take(self, x: Any) -> Any:
        ids = [v for v in self.values if _dtype(v) == "int32"]
        axis = self._axis(x, 1)
        if axis is None:
            return None
        if self.rng.random() < 0.5 or not ids:
            at = self.rng.randrange(int(_shape(x)[axis]))
            return op.take(x, relax.const(at, "int64"), axis, mode="clip")
        if _size(x) // int(_shape(x)[axis]) * _size(ids[0]) > MOST_ELEMENTS:
            return None
        return op.take(x, ids[0], axis, mode="clip")

    def _odd(self, x: Any) -> Any:
        shape, rng = _shape(x), self.rng
        way = rng.randrange(5)
        if way == 0:
            other = "float16" if _dtype(x) == "float32" else "float32"
            return op.astype(x, other)
        if way == 1 and len(shape) >= 2 and _static(shape[-1]):
            return rng.choice([op.tril, op.triu])(x, rng.choice([0, 1, -1]))
        if way == 2 and shape and len(shape) < 5 and _size(x) * 3 <= MOST_ELEMENTS:
            wide = [*shape]
            axis = rng.randrange(len(wide) + 1)
            wide.insert(axis, 3)
            return op.broadcast_to(op.expand_dims(x, axis), relax.ShapeExpr(wide))
        if way == 3 and shape and all(map(_static, shape)) and _size(x) <= MOST_ELEMENTS:
            widths = [rng.choice([0, 0, 1, 2]) for _ in range(2 * len(shape))]
            return op.nn.pad(x, widths) if any(widths) else None
        if way == 4:
            axis = self._axis(x, 2)
            if axis is not None:
                return op.flip(x, axis) if REVERSE else op.nn.relu(x)
        return None


def _shape(value: Any) -> list[Any]:
    return list(value.ty.shape)


def _dtype(value: Any) -> str:
    return str(value.ty.dtype)


def _is_float(value: Any) -> bool:
    return _dtype(value).startswith("float")


def _is_like(a: Any, b: Any) -> bool:
    return _dtype(a) == _dtype(b)


def _static(extent: Any) -> bool:
    return isinstance(extent, int | tirx.IntImm)


def _static_size(shape: Sequence[Any]) -> int:
    """Elements, a symbolic extent taken as 4."""
    size = 1
    for extent in shape:
        size *= int(extent) if _static(extent) else 4
    return size


def _size(value: Any) -> int:
    return _static_size(_shape(value))


def _meets(a: Any, b: Any) -> bool:
    """Whether one of two values is broadcast to the other, or both to something not too large."""
    wide = []
    one, two = _shape(a)[::-1], _shape(b)[::-1]
    for i in range(max(len(one), len(two))):
        m, n = (s[i] if i < len(s) else 1 for s in (one, two))
        if str(m) != str(n) and str(m) != "1" and str(n) != "1":
            return False
        wide.append(n if str(m) == "1" else m)
    return _static_size(wide) <= MOST_ELEMENTS
