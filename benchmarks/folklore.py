"""Common claims about fusion depth, registers and shared memory, asked of NVIDIA's compiler.

    python benchmarks/folklore.py
    python benchmarks/folklore.py --markdown --json folklore.json

Chains of operators of growing length are fused into one kernel each and compiled. Their registers,
spills and occupancy, and the bytes that fused and unfused builds move, decide on each claim. The
verdicts are computed; none is written down. No GPU is needed, and nothing is timed.

Kinds of chains, all over tensors of 4,096 rows:

* plain: add and multiply in turn, with one second input
* transcendental: tanh, sigmoid and exp in turn
* live: powers of x, added up from the last to the first, so that half of all values live at once
* inputs: as plain, but each operator brings an input of its own (for bytes only)
* softmax: as plain, with a softmax behind (a row has to be held)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax
from tvm.relax import op

import tvm_fusion as tf
from tvm_fusion.analysis.traffic import Totals, called_functions, total
from tvm_fusion.codegen import (
    Compiler,
    KernelFigures,
    KernelText,
    compile_resources,
    emit_cuda,
    find_compiler,
    measure_kernels,
    parse_kernels,
)
from tvm_fusion.device import Device
from tvm_fusion.device.gpu import OPT_IN_SHARED_KIB, STATIC_SHARED_BYTES
from tvm_fusion.policy.single_chain import DEFAULT_MAX_DEPTH
from tvm_fusion.schedule import dynamic_shared_bytes
from tvm_fusion.workloads import WORKLOADS

ROWS = 4096
DTYPES = ("float32", "float16")
ELEMENTWISE = ("plain", "transcendental", "live")

HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold"

#: What the claims say.
CLAIMED_DEPTH = 6
CLAIMED_WIDTH = 1024
CLAIMED_SPILL_DEPTH = 8
CLAIMED_EXTENDED_KIB = 96
CLAIMED_TRAFFIC = (3.0, 5.0)

#: From a load to its value: the estimate of ``tvm_fusion.policy.roofline``.
LATENCY_SECONDS = 600e-9


@dataclass(frozen=True)
class Scope:
    """How much is measured."""

    archs: tuple[str, ...]
    depths: tuple[int, ...]
    live_depths: tuple[int, ...]
    widths: tuple[int, ...]
    row_widths: tuple[int, ...]
    networks: tuple[tuple[str, dict[str, int]], ...]


FULL = Scope(
    archs=("sm_80", "sm_90"),
    depths=(1, 2, 4, 6, 8, 16, 32, 64),
    live_depths=(128, 256, 480),
    widths=(512, 1024, 2048, 4096),
    row_widths=(1024, 8192, 32768, 49152),
    networks=(
        ("gpt2_block", {}),
        ("gpt2_block", {"seq": 1}),
        ("gpt2_block", {"seq": 1024}),
        ("bert_layer", {}),
        ("llama_block", {}),
        ("vit_block_decomposed", {}),
    ),
)

QUICK = Scope(
    archs=("sm_80",),
    depths=(1, 6, 8, 16),
    live_depths=(),
    widths=(1024, 2048),
    row_widths=(1024, 49152),
    networks=(("gpt2_block", {}),),
)


@dataclass(frozen=True)
class Chain:
    """A chain that was fused into one kernel, and what the compiler makes of it."""

    arch: str
    kind: str
    dtype: str
    depth: int
    width: int
    registers: int
    spill_bytes: int
    shared_bytes: int
    threads: int
    occupancy: float
    limiter: str


@dataclass(frozen=True)
class Gain:
    """Bytes and modelled seconds of a chain, unfused over fused, and bytes saved per element."""

    kind: str
    dtype: str
    depth: int
    bytes_ratio: float
    seconds_ratio: float
    saved_bytes_per_element: float


@dataclass(frozen=True)
class Probe:
    """A kernel that declares an amount of shared memory: taken by the compiler, or refused."""

    arch: str
    shared_bytes: int
    spill_bytes: int | None
    error: str


@dataclass(frozen=True)
class RowGroup:
    """A chain with a softmax behind, under a limit of shared memory.

    ``evaluated_again`` counts the results that found no place.
    """

    arch: str
    width: int
    limit: int | str
    kernels: int
    evaluated_again: int
    shared_bytes: int
    registers: int
    spill_bytes: int
    occupancy: float


@dataclass(frozen=True)
class NetworkTraffic:
    """What a network moves between its kernels, against what its matrix products take.

    ``unfused_bytes`` and ``fused_bytes`` are all that is moved; the intermediates are these less
    the inputs, weights and result, once each. ``time_ratio`` compares the intermediates at the
    device's bandwidth with the products at its rate for float32.
    """

    network: str
    arch: str
    flops: int
    boundary_bytes: int
    unfused_bytes: int
    fused_bytes: int
    unfused_intermediate_bytes: int
    fused_intermediate_bytes: int
    compute_seconds: float
    intermediate_seconds: float
    time_ratio: float
    fused_time_ratio: float


@dataclass(frozen=True)
class Claim:
    """A claim, what was measured, and what comes of it."""

    claim: str
    measured: str
    verdict: str
    figures: dict[str, Any]


@dataclass(frozen=True)
class Default:
    """A default of ``tvm_fusion.Limits`` and the figures that speak for it or against it."""

    limit: str
    default: str
    measured: str
    follows: bool


@dataclass
class Results:
    """Everything that was measured."""

    compiler: str
    chains: list[Chain] = field(default_factory=list)
    gains: list[Gain] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    rows: list[RowGroup] = field(default_factory=list)
    networks: list[NetworkTraffic] = field(default_factory=list)
    control_spill_bytes: int = 0


# -- modules ------------------------------------------------------------------------------------

Emit = Callable[[Any], Any]


def _plain(emit: Emit, params: Sequence[Any], depth: int) -> Any:
    value, others = params[0], params[1:]
    for number in range(depth):
        combine = op.multiply if number % 2 else op.add
        value = emit(combine(value, others[number % len(others)]))
    return value


def _transcendental(emit: Emit, params: Sequence[Any], depth: int) -> Any:
    value = params[0]
    for number in range(depth):
        value = emit((op.tanh, op.sigmoid, op.exp)[number % 3](value))
    return value


def _live(emit: Emit, params: Sequence[Any], depth: int) -> Any:
    powers = [params[0]]
    while len(powers) <= (depth + 1) // 2:
        powers.append(emit(op.multiply(powers[-1], powers[0])))
    value = powers.pop()
    for _ in range(depth // 2):
        value = emit(op.add(value, powers.pop()))
    return value


def _softmax(emit: Emit, params: Sequence[Any], depth: int) -> Any:
    return emit(op.nn.softmax(_plain(emit, params, depth), -1))


BUILDERS: dict[str, Callable[[Emit, Sequence[Any], int], Any]] = {
    "plain": _plain,
    "transcendental": _transcendental,
    "live": _live,
    "inputs": _plain,
    "softmax": _softmax,
}

#: Parameters of each kind, for a number of operators.
PARAMETERS: dict[str, Callable[[int], int]] = {
    "plain": lambda depth: 2,
    "transcendental": lambda depth: 1,
    "live": lambda depth: 1,
    "inputs": lambda depth: depth + 1,
    "softmax": lambda depth: 2,
}


def chain_module(kind: str, depth: int, width: int, dtype: str) -> tvm.IRModule:
    """A legalized module that is one chain of operators.

    Parameters
    ----------
    kind : str
        A key of ``BUILDERS``.
    depth : int
        Operators, without the softmax that the kind ``softmax`` has behind them.
    width : int
        Innermost extent.
    dtype : str
        Type of all tensors.
    """
    tensor = relax.TensorType((ROWS, width), dtype)
    params = [relax.Var(f"x{number}", tensor) for number in range(PARAMETERS[kind](depth))]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = BUILDERS[kind](builder.emit, params, depth)
            result = builder.emit_output(made)
        builder.emit_func_output(result)
    return relax.transform.LegalizeOps()(builder.get())


def target_of(arch: str) -> tvm.target.Target:
    """A CUDA target of an architecture, with a host."""
    attrs = {
        "kind": "cuda", "arch": arch, "max_num_threads": 1024, "max_threads_per_block": 1024,
        "max_shared_memory_per_block": STATIC_SHARED_BYTES, "thread_warp_size": 32,
    }  # fmt: skip
    return tvm.target.Target(attrs, host="llvm")


def build(
    mod: tvm.IRModule, arch: str, limits: tf.Limits | None = None, fuse: bool = True
) -> tuple[tvm.IRModule, tf.Trace]:
    """Fuse and schedule a legalized module, or only schedule it."""
    no_fuse: Any = () if fuse else lambda _op: True
    fusion = tf.OperatorFusion(feedback="off", limits=limits, no_fuse=no_fuse)
    with target_of(arch), tf.record() as trace:
        made = tvm.transform.Sequential([fusion])(mod)
    return made, trace


# -- measuring ----------------------------------------------------------------------------------


def kernel_texts(mod: tvm.IRModule, arch: str) -> list[KernelText]:
    """The kernels of a scheduled module, to be compiled."""
    target = target_of(arch)
    functions = [f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    return [KernelText(emit_cuda(f, target), dynamic_shared_bytes(f)) for f in functions]


def single_kernel(mod: tvm.IRModule, arch: str, name: str) -> KernelText:
    """The one kernel of a module.

    Raises
    ------
    ValueError
        There are several: figures of a part would say nothing of the chain.
    """
    texts = kernel_texts(mod, arch)
    count = sum(len(parse_kernels(text.source)) for text in texts)
    if count != 1:
        raise ValueError(f"{name} became {count} kernels, not one")
    return texts[0]


def _known(value: float | None, what: str) -> Any:
    """A figure that has to be there."""
    if value is None:
        raise ValueError(f"no {what}: the compiler or NVIDIA's occupancy calculator is missing")
    return value


def chain_cases(scope: Scope) -> list[tuple[str, int, int, str]]:
    """Kind, depth, width and type of every chain."""
    deep = product(ELEMENTWISE, scope.depths, (CLAIMED_WIDTH,), DTYPES)
    deeper = product(("live",), scope.live_depths, (CLAIMED_WIDTH,), DTYPES)
    wide = product(ELEMENTWISE, (1, CLAIMED_DEPTH), scope.widths, DTYPES)
    behind = product(("softmax",), (CLAIMED_DEPTH,), (*scope.widths, *scope.row_widths), DTYPES)
    return list(dict.fromkeys([*deep, *deeper, *wide, *behind]))


def measure_chains(scope: Scope, arch: str, compiler: Compiler) -> list[Chain]:
    """Fuse every chain into one kernel and compile it."""
    cases = chain_cases(scope)
    texts = []
    for kind, depth, width, dtype in cases:
        made, _ = build(chain_module(kind, depth, width, dtype), arch)
        texts.append(single_kernel(made, arch, f"{kind} chain of {depth} in {dtype}"))
    device = Device.from_target(target_of(arch))
    found = measure_kernels(texts, device, arch, compiler)
    return [_chain(arch, case, figures) for case, figures in zip(cases, found, strict=True)]


def _chain(arch: str, case: tuple[str, int, int, str], figures: KernelFigures) -> Chain:
    kind, depth, width, dtype = case
    return Chain(
        arch=arch,
        kind=kind,
        dtype=dtype,
        depth=depth,
        width=width,
        registers=_known(figures.registers, "registers"),
        spill_bytes=_known(figures.spill_bytes, "spills"),
        shared_bytes=figures.shared_bytes,
        threads=_known(figures.threads, "threads"),
        occupancy=_known(figures.occupancy, "occupancy"),
        limiter=figures.limiter,
    )


def modelled_seconds(mod: tvm.IRModule, trace: tf.Trace, device: Device) -> float:
    """Seconds of all launches: each a launch, and its bytes or its arithmetic, the longer one."""
    seconds = 0.0
    for name in called_functions(mod):
        plan = trace.kernels[name].plan
        if plan is None:
            raise ValueError(f"{name} was not planned: its arithmetic is not known")
        moving = (plan.bytes_read + plan.bytes_written) / device.memory_bytes_per_second
        computing = plan.operations / (device.fp32_flops_per_second / 2)
        seconds += device.launch_seconds + max(moving, computing)
    return seconds


def measure_gains(scope: Scope) -> list[Gain]:
    """Bytes and modelled seconds of chains on the first architecture, unfused over fused."""
    arch = scope.archs[0]
    device = Device.from_target(target_of(arch))
    found = []
    depths = dict.fromkeys((*ELEMENTWISE, "inputs"), scope.depths)
    depths["live"] += scope.live_depths
    cases = [(kind, depth) for kind, several in depths.items() for depth in several if depth > 1]
    for (kind, depth), dtype in product(cases, DTYPES):
        mod = chain_module(kind, depth, CLAIMED_WIDTH, dtype)
        fused, fused_trace = build(mod, arch)
        apart, apart_trace = build(mod, arch, fuse=False)
        moved = [total(made).bytes for made in (apart, fused)]
        seconds = [
            modelled_seconds(apart, apart_trace, device),
            modelled_seconds(fused, fused_trace, device),
        ]
        saved = (moved[0] - moved[1]) / (ROWS * CLAIMED_WIDTH)
        ratios = (moved[0] / moved[1], seconds[0] / seconds[1])
        found.append(Gain(kind, dtype, depth, *ratios, saved))
    return found


#: A kernel that keeps an array in shared memory.
PROBE = """
extern "C" __global__ void __launch_bounds__(256) probe(float* x) {{
  __shared__ float held[{count}];
  for (int i = threadIdx.x; i < {count}; i += 256) held[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < {count}; i += 256) x[i] = held[{count} - 1 - i];
}}
"""

#: 64 sums that live through a loop, for which two blocks of 1,024 threads leave 32 registers.
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) probe(float* x, int n) {
  float sums[64];
  #pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = x[threadIdx.x + 1024 * i];
  for (int k = 0; k < n; ++k) {
    #pragma unroll
    for (int i = 0; i < 64; ++i) sums[i] = sums[i] * x[k] + sums[(i + 1) % 64];
  }
  #pragma unroll
  for (int i = 0; i < 64; ++i) x[threadIdx.x * 64 + i] = sums[i];
}
"""

#: What is asked for besides the limit itself and one word more.
LARGER_SHARED_KIB = (64, 96)


def supported_archs(compiler: Compiler) -> list[str]:
    """The architectures of the table of opt-in limits that the compiler knows."""
    archs = [f"sm_{capability}" for capability in OPT_IN_SHARED_KIB]
    return [arch for arch in archs if compiler.supports(arch)]


def measure_probes(archs: Sequence[str], compiler: Compiler) -> list[Probe]:
    """Ask the compiler for kernels with 48 KiB of static shared memory, and with more."""
    sizes = [STATIC_SHARED_BYTES, STATIC_SHARED_BYTES + 4]
    sizes += [kib * 1024 for kib in LARGER_SHARED_KIB]
    found = []
    for arch in archs:
        sources = [PROBE.format(count=size // 4) for size in sizes]
        for size, made in zip(sizes, compile_resources(sources, arch, compiler), strict=True):
            if isinstance(made, dict):
                found.append(Probe(arch, size, made["probe"].spill_bytes, ""))
            else:
                found.append(Probe(arch, size, None, str(made).splitlines()[-1]))
    return found


def control_spills(arch: str, compiler: Compiler) -> int:
    """Bytes that a kernel made to spill does spill: the measurement sees spills."""
    (made,) = compile_resources([SPILLING], arch, compiler)
    if not isinstance(made, dict):
        raise made
    return made["probe"].spill_bytes


def measure_rows(scope: Scope, compiler: Compiler) -> list[RowGroup]:
    """Rows that a softmax needs as a whole, under limits of shared memory."""
    limits: tuple[int | str, ...] = (0, STATIC_SHARED_BYTES, "opt-in")
    found = []
    for arch, width, limit in product(scope.archs, scope.row_widths, limits):
        mod = chain_module("softmax", CLAIMED_DEPTH, width, "float32")
        made, trace = build(mod, arch, tf.Limits(shared_memory_bytes=limit))
        device = Device.from_target(target_of(arch))
        figures = measure_kernels(kernel_texts(made, arch), device, arch, compiler)
        plans = [record.plan for record in trace.kernels.values() if record.plan is not None]
        notes = [note for plan in plans for note in plan.notes]
        found.append(
            RowGroup(
                arch=arch,
                width=width,
                limit=limit,
                kernels=total(made).kernels,
                evaluated_again=len(notes),
                shared_bytes=max(one.shared_bytes for one in figures),
                registers=max(_known(one.registers, "registers") for one in figures),
                spill_bytes=sum(_known(one.spill_bytes, "spills") for one in figures),
                occupancy=min(_known(one.occupancy, "occupancy") for one in figures),
            )
        )
    return found


def matmul_flops(mod: tvm.IRModule) -> int:
    """Operations of all matrix products of ``main``: 2 * elements of the result * inner extent."""
    found: list[int] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call) and expr.op == tvm.ir.Op.get("relax.matmul"):
            inner = int(expr.args[0].ty.shape[-1])
            found.append(2 * prod(int(extent) for extent in expr.ty.shape) * inner)

    relax.analysis.post_order_visit(mod["main"], visit)
    return sum(found)


def boundary_bytes(mod: tvm.IRModule) -> int:
    """Bytes of the inputs, weights and the result of ``main``, once each."""
    main = mod["main"]
    types = [*(param.ty for param in main.params), main.ret_ty]
    sizes = [
        prod(int(e) for e in ty.shape) * (tvm.DataType(str(ty.dtype)).bits // 8) for ty in types
    ]
    return sum(sizes)


def measure_networks(scope: Scope) -> list[NetworkTraffic]:
    """Build the networks fused and unfused, and compare what they move and compute."""
    found = []
    for (name, sizes), arch in product(scope.networks, scope.archs):
        mod = WORKLOADS[name](**sizes)
        legal = relax.transform.LegalizeOps()(mod)
        apart, fused = (total(build(legal, arch, fuse=fuse)[0]) for fuse in (False, True))
        label = ", ".join([name, *(f"{key}={value}" for key, value in sizes.items())])
        found.append(_network(label, arch, mod, apart, fused))
    return found


def _network(
    label: str, arch: str, mod: tvm.IRModule, apart: Totals, fused: Totals
) -> NetworkTraffic:
    device = Device.from_target(target_of(arch))
    flops, boundary = matmul_flops(mod), boundary_bytes(mod)
    between = [totals.bytes - boundary for totals in (apart, fused)]
    computing = flops / device.fp32_flops_per_second
    moving = [count / device.memory_bytes_per_second for count in between]
    return NetworkTraffic(
        network=label,
        arch=arch,
        flops=flops,
        boundary_bytes=boundary,
        unfused_bytes=apart.bytes,
        fused_bytes=fused.bytes,
        unfused_intermediate_bytes=between[0],
        fused_intermediate_bytes=between[1],
        compute_seconds=computing,
        intermediate_seconds=moving[0],
        time_ratio=moving[0] / computing,
        fused_time_ratio=moving[1] / computing,
    )


# -- verdicts -----------------------------------------------------------------------------------


def verdict(holding: int, cases: int) -> str:
    """What follows from the number of cases in which a claim holds."""
    if not cases:
        raise ValueError("a claim without a case to measure it by")
    return HOLDS if holding == cases else IN_PART if holding else FAILS


def _span(values: Sequence[float], spec: str = "g") -> str:
    low, high = f"{min(values):{spec}}", f"{max(values):{spec}}"
    return low if low == high else f"{low} to {high}"


def occupancy_claim(results: Results) -> Claim:
    """Six elementwise layers against one, and wide against narrow, on an A100."""
    on_a100 = [c for c in results.chains if c.arch == "sm_80"]
    occupied = {(c.kind, c.dtype, c.depth, c.width): c.occupancy for c in on_a100}
    six = [c for c in on_a100 if c.depth == CLAIMED_DEPTH and c.kind in ELEMENTWISE]
    wide = [c for c in six if c.width > CLAIMED_WIDTH]
    halved = [
        c
        for c in wide
        if c.occupancy <= occupied[c.kind, c.dtype, 1, c.width] / 2
        or c.occupancy <= occupied[c.kind, c.dtype, c.depth, CLAIMED_WIDTH] / 2
    ]
    narrow = [c.occupancy for c in six if c.width <= CLAIMED_WIDTH]
    alone = [occupied[c.kind, c.dtype, 1, c.width] for c in wide]
    rows = [c for c in on_a100 if c.kind == "softmax" and c.occupancy <= 0.5]
    first = min((c.width for c in rows), default=None)
    measured = (
        f"depth {CLAIMED_DEPTH}: occupancy {_span([c.occupancy for c in wide])} at widths over "
        f"{CLAIMED_WIDTH}, {_span(narrow)} below; one layer: {_span(alone)}; halved in "
        f"{len(halved)} of {len(wide)}. With a softmax behind, half or less first at "
        f"{'no width' if first is None else f'width {first}'}"
    )
    figures = {
        "wide": [c.occupancy for c in wide],
        "narrow": narrow,
        "one_layer": alone,
        "halved": len(halved),
        "cases": len(wide),
        "first_halved_softmax_width": first,
    }
    return Claim(
        f"Six fused elementwise layers on an A100 halve occupancy when the dimension exceeds "
        f"{CLAIMED_WIDTH}",
        measured,
        verdict(len(halved), len(wide)),
        figures,
    )


def _deep(results: Results) -> list[tuple[Chain, Gain]]:
    """The chains that are deeper than the claim's bound, with what their fusion gains."""
    gains = {(g.kind, g.dtype, g.depth): g for g in results.gains}
    chains = [c for c in results.chains if c.depth > CLAIMED_SPILL_DEPTH]
    return [(c, gains[c.kind, c.dtype, c.depth]) for c in chains]


def _is_eaten(chain: Chain, gain: Gain) -> bool:
    """Whether spills move as much as fusion saves.

    What is spilled in the text of a kernel is at most what is spilled for one element.
    """
    return chain.spill_bytes >= gain.saved_bytes_per_element


def spill_claim(results: Results) -> Claim:
    """Bytes that deep chains spill against bytes that their fusion saves."""
    pairs = _deep(results)
    deep = [chain for chain, _ in pairs]
    spilling = [c for c in deep if c.spill_bytes]
    eaten = [chain for chain, gain in pairs if _is_eaten(chain, gain)]
    first = min((c.depth for c in spilling), default=None)
    least = min(deep, key=lambda c: c.occupancy)
    measured = (
        f"{len(spilling)} of {len(deep)} chains of depth over {CLAIMED_SPILL_DEPTH} (up to "
        f"{max(c.depth for c in deep)}) spill, first at "
        f"{'no depth' if first is None else f'depth {first}'}, at most "
        f"{max(c.spill_bytes for c in deep)} B a thread; the gain is eaten in {len(eaten)}. Low "
        f"occupancy comes first: {least.occupancy:g} ({least.kind}, depth {least.depth}). A kernel "
        f"made to spill does: {results.control_spill_bytes} B"
    )
    figures = {
        "cases": len(deep),
        "spilling": len(spilling),
        "eaten": len(eaten),
        "most_registers": max(c.registers for c in deep),
        "first_spilling_depth": first,
        "least_occupancy": least.occupancy,
        "control_spill_bytes": results.control_spill_bytes,
    }
    return Claim(
        f"Beyond depth {CLAIMED_SPILL_DEPTH} spills eat the gain",
        measured,
        verdict(len(eaten), len(deep)),
        figures,
    )


def _static_limit_stands(results: Results, arch: str) -> bool:
    """Whether the compiler takes 48 KiB and refuses a word more."""
    taken = {p.shared_bytes: not p.error for p in results.probes if p.arch == arch}
    return taken[STATIC_SHARED_BYTES] and not taken[STATIC_SHARED_BYTES + 4]


def shared_claim(results: Results) -> Claim:
    """The static limit by the compiler, the opt-in limit by NVIDIA's table."""
    archs = list(dict.fromkeys(p.arch for p in results.probes))
    static = [arch for arch in archs if _static_limit_stands(results, arch)]
    granted = OPT_IN_SHARED_KIB
    extended = [f"sm_{c}" for c, kib in granted.items() if kib == CLAIMED_EXTENDED_KIB]
    others = [kib for kib in granted.values() if kib != CLAIMED_EXTENDED_KIB]
    measured = (
        f"{STATIC_SHARED_BYTES // 1024} KiB static: {len(static)} of {len(archs)} architectures "
        f"take it and refuse 4 bytes more. On request: {CLAIMED_EXTENDED_KIB} KiB on "
        f"{', '.join(extended)} only; {_span(others)} KiB on the {len(others)} others"
    )
    figures = {
        "static_archs": static,
        "asked_archs": archs,
        "extended_archs": extended,
        "opt_in_kib": {f"sm_{c}": kib for c, kib in granted.items()},
    }
    return Claim(
        f"48 KB of shared memory, {CLAIMED_EXTENDED_KIB} KB when extended",
        measured,
        verdict(len(static) + len(extended), len(archs) + len(granted)),
        figures,
    )


def traffic_claim(results: Results) -> Claim:
    """Time of the intermediates against time of the matrix products, both at peak rates."""
    low, high = CLAIMED_TRAFFIC
    networks = results.networks
    holding = [n for n in networks if low <= n.time_ratio <= high]
    one_gpu = [n for n in networks if n.arch == networks[0].arch]
    rates = [low * n.flops / n.intermediate_seconds for n in one_gpu]
    measured = (
        f"time of the intermediates over time of the products, unfused: "
        f"{_span([n.time_ratio for n in networks], '.2f')}; in the claimed range in {len(holding)} "
        f"of {len(networks)}. All bytes, unfused over fused: "
        f"{_span([n.unfused_bytes / n.fused_bytes for n in networks], '.2f')}. A ratio of {low:g} "
        f"on {one_gpu[0].arch} takes products at "
        f"{_span([rate / 1e12 for rate in rates], '.0f')} TFLOPS"
    )
    figures = {
        "cases": len(networks),
        "holding": len(holding),
        "time_ratios": [n.time_ratio for n in networks],
        "byte_ratios": [n.unfused_bytes / n.fused_bytes for n in networks],
        "flops_per_second_for_the_claim": rates,
    }
    return Claim(
        f"Intermediate traffic is {low:g}-{high:g} times compute in an unfused transformer block",
        measured,
        verdict(len(holding), len(networks)),
        figures,
    )


def speed_up_claim(results: Results) -> Claim:
    """Unfused over fused, in bytes, against the length of the chain."""
    gains = results.gains
    equal = [g for g in gains if abs(g.bytes_ratio / g.depth - 1) < 0.05]
    in_time = [g for g in gains if abs(g.seconds_ratio / g.depth - 1) < 0.05]
    deepest = max(g.depth for g in gains if g.kind != "live")
    at_deepest = {g.kind: g for g in gains if (g.depth, g.dtype) == (deepest, DTYPES[0])}
    listed = ", ".join(f"{kind} {g.bytes_ratio:.1f}" for kind, g in at_deepest.items())
    measured = (
        f"bytes equal the length in {len(equal)} of {len(gains)}, modelled time in {len(in_time)}. "
        f"Bytes at depth {deepest} in {DTYPES[0]}: {listed}; modelled time of transcendental: "
        f"{at_deepest['transcendental'].seconds_ratio:.1f}"
    )
    figures = {
        "cases": len(gains),
        "equal_bytes": len(equal),
        "equal_seconds": len(in_time),
        "depth": deepest,
        "bytes_ratio": {kind: g.bytes_ratio for kind, g in at_deepest.items()},
        "seconds_ratio": {kind: g.seconds_ratio for kind, g in at_deepest.items()},
    }
    return Claim(
        "The speed-up of a fused chain equals its length",
        measured,
        verdict(len(equal), len(gains)),
        figures,
    )


def overflow_claim(results: Results) -> Claim:
    """What becomes of a kernel, and of a group, that wants more shared memory than it may have."""
    over = [p for p in results.probes if p.shared_bytes > STATIC_SHARED_BYTES]
    refused = [p for p in over if p.error]
    tight = [r for r in results.rows if r.evaluated_again or r.kernels > 1]
    spilling = [r for r in tight if r.spill_bytes]
    again = [r for r in tight if r.evaluated_again]
    split = [r for r in tight if r.kernels > 1]
    measured = (
        f"over the limit, {len(refused)} of {len(over)} kernels are refused with an error, "
        f"{len(over) - len(refused)} compile. Of {len(tight)} groups that do not fit, {len(again)} "
        f"evaluate results again, {len(split)} become several kernels, {len(spilling)} spill"
    )
    figures = {
        "over": len(over),
        "refused": len(refused),
        "error": refused[0].error if refused else "",
        "groups": len(tight),
        "evaluated_again": len(again),
        "split": len(split),
        "spilling": len(spilling),
    }
    holding = sum(bool(p.spill_bytes) for p in over) + len(spilling)
    return Claim(
        "Shared memory over the limit turns into register spills",
        measured,
        verdict(holding, len(over) + len(tight)),
        figures,
    )


CLAIMS = (
    occupancy_claim,
    spill_claim,
    shared_claim,
    traffic_claim,
    speed_up_claim,
    overflow_claim,
)


def _depth_default(results: Results) -> Default:
    pairs = _deep(results)
    eaten = sum(_is_eaten(chain, gain) for chain, gain in pairs)
    gaining = sum(gain.seconds_ratio > 1 for _, gain in pairs)
    return Default(
        "max_depth",
        f"None; {DEFAULT_MAX_DEPTH} for single_chain",
        f"of {len(pairs)} chains over depth {CLAIMED_SPILL_DEPTH}, {gaining} gain by the model and "
        f"{eaten} lose the gain to spills. The {DEFAULT_MAX_DEPTH} is the classic rule's own",
        not eaten and gaining == len(pairs),
    )


def _registers_default(results: Results) -> Default:
    """A limit would be of use if it parted kernels that spill much from those that do not."""
    limit = Device().max_registers_per_thread
    pairs = _deep(results)
    full = [(chain, gain) for chain, gain in pairs if chain.registers == limit]
    eaten = sum(_is_eaten(chain, gain) for chain, gain in full)
    most = max(c.registers for c in results.chains if c.depth <= CLAIMED_SPILL_DEPTH)
    return Default(
        "registers_per_thread",
        "None",
        f"at most {most} registers up to depth {CLAIMED_SPILL_DEPTH}; {len(full)} of {len(pairs)} "
        f"deeper chains take all {limit}, {eaten} of them lose the gain to spills",
        not eaten,
    )


def _needed_occupancy(arch: str) -> float:
    """Occupancy at which one load of 16 bytes in each thread keeps the memory busy."""
    device = Device.from_target(target_of(arch))
    on_their_way = device.memory_bytes_per_second * LATENCY_SECONDS / device.multiprocessors
    return on_their_way / (16 * device.max_threads_per_multiprocessor)


def _occupancy_default(results: Results) -> Default:
    """Chains gain though their occupancy is low: the gain is cut by what the memory would miss."""
    needed = {arch: _needed_occupancy(arch) for arch in {c.arch for c in results.chains}}
    gains = {(g.kind, g.dtype, g.depth): g.seconds_ratio for g in results.gains}
    left = [
        gains[c.kind, c.dtype, c.depth] * min(1.0, c.occupancy / needed[c.arch])
        for c in results.chains
        if (c.kind, c.dtype, c.depth) in gains
    ]
    half = [c for c in results.chains if c.occupancy <= 0.5]
    least = min(results.chains, key=lambda c: c.occupancy)
    return Default(
        "min_occupancy",
        "None",
        f"least {least.occupancy:g} ({least.kind}, depth {least.depth}); {len(half)} of "
        f"{len(results.chains)} kernels at half or less. The memory needs "
        f"{_span(sorted(needed.values()), '.2f')} if each thread waits for 16 bytes; chains below "
        f"that taken as slower in proportion, all gain {min(left):.1f} times or more",
        min(left) > 1,
    )


def _shared_default(results: Results) -> Default:
    archs = list(dict.fromkeys(p.arch for p in results.probes))
    static = sum(_static_limit_stands(results, arch) for arch in archs)
    limited = {(r.arch, r.width, r.limit): r for r in results.rows}
    larger = [
        (r, limited[r.arch, r.width, STATIC_SHARED_BYTES])
        for r in results.rows
        if r.limit == "opt-in" and r.shared_bytes > STATIC_SHARED_BYTES
    ]
    emptier = sum(more.occupancy < less.occupancy for more, less in larger)
    groups = len({(r.arch, r.width) for r in results.rows})
    sizes = len(set(OPT_IN_SHARED_KIB.values()))
    return Default(
        "shared_memory_bytes",
        "None: what the target says",
        f"48 KiB is good on {static} of {len(archs)} architectures; what is granted on request "
        f"has {sizes} sizes. {len(larger)} of {groups} groups use more where allowed, {emptier} of "
        f"them at lower occupancy",
        static == len(archs) and sizes > 1,
    )


DEFAULTS = (_depth_default, _registers_default, _occupancy_default, _shared_default)


# -- printing -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sheet:
    """A table, to be printed either way."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def rich(self) -> Table:
        """For a terminal."""
        table = Table(*self.columns, title=self.title)
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """For a page."""
        rule = "|" + " --- |" * len(self.columns)
        lines = [f"| {' | '.join(row)} |" for row in (self.columns, *self.rows)]
        return "\n".join([f"### {self.title}", "", lines[0], rule, *lines[1:], ""])


def _pivot(
    title: str, names: tuple[str, ...], cells: dict[tuple[tuple[str, ...], int], str]
) -> Sheet:
    """A sheet of cells that are given by line and column."""
    columns = sorted({column for _, column in cells})
    lines = sorted({line for line, _ in cells})
    rows = [(*line, *(cells.get((line, column), "") for column in columns)) for line in lines]
    return Sheet(title, (*names, *map(str, columns)), rows)


def _chain_sheet(title: str, chains: Sequence[Chain], column: Callable[[Chain], int]) -> Sheet:
    cells: dict[tuple[tuple[str, ...], int], str] = {}
    for chain in chains:
        spills = f", {chain.spill_bytes} B spilled" if chain.spill_bytes else ""
        line = (chain.kind, chain.dtype, chain.arch)
        cells[line, column(chain)] = f"{chain.registers}, {chain.occupancy:g}{spills}"
    return _pivot(title, ("chain", "type", "arch"), cells)


def _gain_sheet(gains: Sequence[Gain]) -> Sheet:
    title = "Unfused over fused by depth: bytes, modelled time"
    cells: dict[tuple[tuple[str, ...], int], str] = {
        ((g.kind, g.dtype), g.depth): f"{g.bytes_ratio:.1f}, {g.seconds_ratio:.1f}" for g in gains
    }
    return _pivot(title, ("chain", "type"), cells)


def _probe_sheet(probes: Sequence[Probe]) -> Sheet:
    sizes = sorted({probe.shared_bytes for probe in probes})
    taken = {(probe.arch, probe.shared_bytes): not probe.error for probe in probes}
    rows = []
    for capability, kib in OPT_IN_SHARED_KIB.items():
        arch = f"sm_{capability}"
        answers = [taken.get((arch, size)) for size in sizes]
        named = {True: "compiles", False: "refused", None: "not asked"}
        rows.append((arch, *(named[answer] for answer in answers), str(kib)))
    columns = ("arch", *(f"{size:,} B static" for size in sizes), "KiB on request")
    return Sheet("Shared memory of a thread block", columns, rows)


def _row_sheet(rows: Sequence[RowGroup]) -> Sheet:
    columns = (
        "arch", "row", "limit, B", "kernels", "evaluated again", "shared B", "registers",
        "spilled B", "occupancy",
    )  # fmt: skip
    cells = [
        (
            r.arch, str(r.width), str(r.limit), str(r.kernels), str(r.evaluated_again),
            str(r.shared_bytes), str(r.registers), str(r.spill_bytes), f"{r.occupancy:g}",
        )
        for r in rows
    ]  # fmt: skip
    return Sheet("Six layers and a softmax under limits of shared memory", columns, cells)


def _network_sheet(networks: Sequence[NetworkTraffic]) -> Sheet:
    columns = (
        "network", "arch", "GFLOP", "products, us", "intermediates, MB", "intermediates, us",
        "ratio", "ratio fused", "all bytes, unfused / fused",
    )  # fmt: skip
    rows = [
        (
            n.network, n.arch, f"{n.flops / 1e9:.3f}", f"{n.compute_seconds * 1e6:.1f}",
            f"{n.unfused_intermediate_bytes / 1e6:.2f}", f"{n.intermediate_seconds * 1e6:.1f}",
            f"{n.time_ratio:.2f}", f"{n.fused_time_ratio:.2f}",
            f"{n.unfused_bytes / n.fused_bytes:.2f}",
        )
        for n in networks
    ]  # fmt: skip
    return Sheet("Intermediates against matrix products, float32", columns, rows)


def sheets(results: Results, claims: Sequence[Claim], defaults: Sequence[Default]) -> list[Sheet]:
    """All tables, the verdicts first."""
    deep = [c for c in results.chains if c.width == CLAIMED_WIDTH and c.kind in ELEMENTWISE]
    wide = [c for c in results.chains if c.depth == CLAIMED_DEPTH]
    return [
        Sheet(
            "Claims",
            ("claim", "what was measured", "verdict"),
            [(c.claim, c.measured, c.verdict) for c in claims],
        ),
        Sheet(
            "Defaults of Limits",
            ("limit", "default", "what was measured", "follows"),
            [(d.limit, d.default, d.measured, "yes" if d.follows else "no") for d in defaults],
        ),
        _chain_sheet(
            f"Registers, occupancy by depth, width {CLAIMED_WIDTH}", deep, lambda c: c.depth
        ),
        _chain_sheet(
            f"Registers, occupancy by width, depth {CLAIMED_DEPTH}", wide, lambda c: c.width
        ),
        _gain_sheet(results.gains),
        _probe_sheet(results.probes),
        _row_sheet(results.rows),
        _network_sheet(results.networks),
    ]


def measure(scope: Scope, compiler: Compiler, console: Console) -> Results:
    """Measure everything."""
    results = Results(compiler.name)
    for arch in scope.archs:
        with console.status(f"chains on {arch}"):
            results.chains += measure_chains(scope, arch, compiler)
    with console.status("bytes of chains"):
        results.gains = measure_gains(scope)
    with console.status("shared memory"):
        results.control_spill_bytes = control_spills(scope.archs[0], compiler)
        results.probes = measure_probes(supported_archs(compiler), compiler)
        results.rows = measure_rows(scope, compiler)
    with console.status("networks"):
        results.networks = measure_networks(scope)
    return results


def main(argv: Sequence[str] | None = None) -> None:
    """Print the tables, and write the JSON file if one is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compiler", choices=("nvrtc", "nvcc"), default="nvrtc")
    parser.add_argument("--quick", action="store_true", help="few depths and widths, one GPU")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    args = parser.parse_args(argv)
    compiler = find_compiler(args.compiler)
    assert compiler is not None  # it is named, so it is found, or an error says that it is missing
    console = Console(stderr=args.markdown, width=None if sys.stdout.isatty() else 160)
    results = measure(QUICK if args.quick else FULL, compiler, console)
    claims = [judge(results) for judge in CLAIMS]
    defaults = [judge(results) for judge in DEFAULTS]
    made = sheets(results, claims, defaults)
    if args.markdown:
        print("\n".join(sheet.markdown() for sheet in made))
    else:
        console.print(f"Figures of {compiler.name}", *(sheet.rich() for sheet in made), sep="\n")
    if args.json is not None:
        data = {
            **asdict(results),
            "claims": [asdict(claim) for claim in claims],
            "defaults": [asdict(default) for default in defaults],
        }
        args.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
