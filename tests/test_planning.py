"""Plans of small groups, in numbers: axes, what is kept where, threads; and plans as data."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from tvm import relax, tirx
from tvm.relax import op
from written import (
    GROUP,
    GROUPS,
    SHARED,
    as_group,
    group_func,
    module,
    part,
    prepared,
    random_group_module,
)

from tvm_fusion.analysis.extents import Extent
from tvm_fusion.analysis.nest_reader import read_nests
from tvm_fusion.planning import CannotPlan, KernelPlan, plan_kernel
from tvm_fusion.planning.digits import Digits
from tvm_fusion.planning.launch import column_launches, flat_launch, row_launches
from tvm_fusion.planning.layout import split_class
from tvm_fusion.planning.shared import SharedRequest, assign
from tvm_fusion.planning.stage import stage_inputs
from tvm_fusion.schedule.writer import write_kernel


def softmax(axis: int) -> Any:
    return lambda emit, x: emit(op.nn.softmax(x, axis))


def planned(mod: Any, shared: int = SHARED) -> tuple[tirx.PrimFunc, KernelPlan]:
    func = group_func(mod)
    return func, plan_kernel(read_nests(func), shared)


def classes(func: tirx.PrimFunc, plan: KernelPlan) -> tuple[list[str], list[str]]:
    """Extents of the parallel classes and of the others."""
    group = read_nests(func)
    digits = Digits(stage_inputs(group, [group.inputs[i] for i in plan.staged]))
    if plan.lane >= 0:
        split_class(digits, plan.lane, plan.vector)
    extents = digits.extents
    return [str(extents[c]) for c in plan.parallel], [str(extents[c]) for c in plan.local]


# -- axes ---------------------------------------------------------------------------------------


def merged(emit, x):
    """(4, 6, 50) -> (24, 50)."""
    return emit(op.nn.softmax(emit(op.reshape(x, (24, 50))), -1))


def split(emit, x):
    """(8, 60) -> (8, 4, 15)."""
    return emit(op.nn.softmax(emit(op.reshape(x, (8, 4, 15))), -1))


def split_row(emit, x):
    """A row of 60 that is normalized as one and rectified as four."""
    return emit(op.nn.relu(emit(op.reshape(emit(op.nn.softmax(x, -1)), (8, 4, 15)))))


def transposed(emit, x):
    return emit(op.permute_dims(emit(op.nn.softmax(x, -1)), [0, 2, 1, 3]))


def flattened(emit, x, w):
    b, s, c = x.ty.shape
    return emit(op.reshape(emit(op.nn.rms_norm(x, w, [-1])), relax.ShapeExpr([b * s, c])))


def sliced(emit, x):
    return emit(op.nn.softmax(emit(op.strided_slice(x, [1], [32], [96])), -1))


AXES = {
    # name: module, mode, parallel, local, rows, points of a row
    "last_axis": (module(softmax(-1), (64, 1000)), "row", ["64"], ["1000"], "64", 1000),
    "first_axis": (module(softmax(0), (64, 1000)), "column", ["1000"], ["64"], "1000", 64),
    "middle_axis": (
        # what lies within and outside of the axis is joined: 16 * 32 columns
        module(softmax(1), (4, 24, 16, 32)), "column", ["4", "512"], ["24"], "2048", 24,
    ),
    "merge": (module(merged, (4, 6, 50)), "row", ["24"], ["50"], "24", 50),
    "split": (module(split, (8, 60)), "row", ["32"], ["15"], "32", 15),
    "split_row": (module(split_row, (8, 60)), "row", ["8"], ["60"], "8", 60),
    "transpose": (module(transposed, (2, 4, 32, 64)), "row", ["2", "32", "4"], ["64"], "256", 64),
    "slice": (module(sliced, (16, 96)), "row", ["16"], ["64"], "16", 64),
    "symbolic": (module(flattened, ("b", "s", 256), (256,)), "row", ["b*s"], ["256"], "b*s", 256),
    # each half of a row is read for the other: a row is the two elements that meet
    "rope": (GROUPS["rope"](), "column", ["8", "32", "32"], ["2"], "8192", 2),
    "group_norm": (GROUPS["group_norm_silu"](), "row", ["2", "8"], ["4", "256"], "16", 1024),
}  # fmt: skip


@pytest.mark.parametrize("name", AXES)
def test_axes(name):
    mod, mode, parallel, local, rows, points = AXES[name]
    func, plan = planned(mod)
    assert plan.mode == mode
    assert classes(func, plan) == (parallel, local)
    assert plan.rows == rows
    assert int(plan.row_points) == points


def test_pointwise_groups_are_flat():
    _, plan = planned(GROUPS["bias_gelu"]())
    assert plan.mode == "flat"
    assert plan.vector == 4
    assert set(plan.placement) == {"inline", "global"}


def test_results_without_an_axis_in_common_need_one_block():
    build = module(lambda e, x: [e(op.sum(x, [0])), e(op.max(x, [1]))], (32, 48))
    _, plan = planned(build)
    assert plan.parallel == ()
    assert plan.rows == "1"


def test_a_square_read_both_ways_is_two_axes():
    """`y + y.T` of an intermediate: its axes must not be taken for one."""

    def both(emit, x):
        y = emit(op.exp(x))
        return emit(op.add(y, emit(op.permute_dims(y, [1, 0]))))

    func, _ = planned(module(both, (16, 16)))
    digits = Digits(read_nests(func))
    for axes in (*digits.nests, *digits.tensors.values()):
        own = [digit.cls for axis in axes for digit in axis]
        assert len(own) == len(set(own)) == 2


@pytest.mark.parametrize("seed", range(30))
def test_every_digit_of_a_nest_is_that_of_what_it_stores(seed):
    """In random groups: no class twice in a nest, and the result has the classes of the nest."""
    ready = part(random.Random(seed), prepared(random_group_module(seed)))
    if ready is None:
        pytest.skip("its parameters do not tell a symbol")
    group = read_nests(as_group(ready)[GROUP])
    digits = Digits(group)
    for n, nest in enumerate(group.nests):
        walked = [(d.cls, d.inner) for axis in digits.nests[n] for d in axis]
        assert len(walked) == len(set(walked))
        spatial = set(digits.nest_classes(n, reduced=False))
        for store in nest.stores:
            assert set(digits.tensor_classes(store.tensor)) == spatial
            assert digits.is_aligned(n, store)


# -- what is kept -------------------------------------------------------------------------------


def eight_exps(emit, x, y):
    for _ in range(8):
        x = emit(op.exp(x))
    return emit(op.add(x, y))


def test_what_is_broadcast_along_a_row_is_evaluated_once_a_row():
    _, plan = planned(module(eight_exps, (4096, 1), (4096, 4096)))
    assert plan.placement[:8] == ("scalar",) * 8
    assert plan.recompute_factor < 1.1


def test_what_is_broadcast_to_all_rows_is_not_evaluated_for_each():
    func = group_func(module(eight_exps, (1, 4096), (4096, 4096)))
    with pytest.raises(CannotPlan) as caught:
        plan_kernel(read_nests(func), SHARED)
    assert caught.value.code == "recompute"
    assert caught.value.figures["factor"] == 4096


def test_what_is_cheap_is_evaluated_again():
    """A bias and a scale in front of a reduction and behind it: two additions are not kept."""

    def cheap(emit, x):
        total = emit(op.sum(x, [-1], keepdims=True))
        return emit(op.multiply(emit(op.negative(x)), total))

    func, plan = planned(module(cheap, (64, 512)))
    names = [nest.name for nest in read_nests(func).nests]
    at = len(plan.staged) + names.index("compute")
    assert plan.placement[at] == "inline"
    assert plan.placement[0] == "register"  # the copy of x, which would be read twice


def test_intermediates_stay_in_registers_where_threads_read_their_own():
    _, plan = planned(module(softmax(-1), (64, 1000)))
    assert plan.placement == ("register", "scalar", "register", "scalar", "global")


def test_what_other_threads_read_is_shared():
    def reversed_product(emit, x):
        y = emit(op.nn.softmax(x, -1))
        low, high = (emit(op.strided_slice(y, [1], [b], [b + 511])) for b in (0, 1))
        return emit(op.subtract(high, low))

    _, plan = planned(module(reversed_product, (64, 512)))
    assert "shared" in plan.placement
    assert plan.shared_bytes >= 512 * 4


def test_what_does_not_fit_is_evaluated_again_and_noted():
    def halves_swapped(emit, x):
        y = emit(op.nn.softmax(x, -1))
        low, high = (emit(op.strided_slice(y, [1], [b], [b + 8191])) for b in (0, 1))
        return emit(op.subtract(high, low))

    mod = module(halves_swapped, (64, 8192))
    _, kept = planned(mod)
    assert "shared" in kept.placement
    assert not kept.notes
    _, let_go = planned(mod, 4096)
    assert let_go.shared_bytes <= 4096
    assert let_go.notes
    assert all("evaluated again" in note for note in let_go.notes)


def test_arrays_whose_lives_do_not_meet_take_turns():
    arrays = assign(
        [
            SharedRequest("a", 100, "float32", 0, 2),
            SharedRequest("b", 300, "float32", 3, 4),  # a is dead
            SharedRequest("c", 50, "float32", 2, 5),  # a is read by the nest that writes c
            SharedRequest("d", 10, "float16", 6, 7),  # another type
        ]
    )
    assert arrays.array_of["a"] == arrays.array_of["b"]
    assert len({arrays.array_of[key] for key in "acd"}) == 3
    assert arrays.sizes == (300, 50, 10)
    assert 300 * 4 + 50 * 4 + 10 * 2 <= arrays.nbytes <= 1536  # each begins at a multiple of 64


# -- threads ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("points", "rows", "vector", "threads", "several"),
    [
        (1, 65536, 1, 1, 128),
        (7, 65536, 1, 8, 16),
        (32, 65536, 4, 8, 16),
        (100, 65536, 4, 32, 4),
        (128, 65536, 4, 32, 4),
        (768, 65536, 4, 64, 1),
        (1000, 65536, 4, 64, 1),
        (4096, 65536, 4, 256, 1),
        (4096, 64, 4, 1024, 1),  # few rows: more threads each
        (131072, 65536, 4, 1024, 1),
    ],
)
def test_preferred_threads_of_rows(points, rows, vector, threads, several):
    first = row_launches(points, Extent(rows), vector, 1024, 16)[0]
    assert (first.threads, first.rows) == (threads, several)


@pytest.mark.parametrize("points", [1, 7, 33, 100, 768, 1000, 5000, 33000, 131072])
@pytest.mark.parametrize("rows", [1, 3, 128, 65537])
@pytest.mark.parametrize("vector", [1, 4, 8])
def test_launches_of_rows_are_legal_and_grow(points, rows, vector):
    launches = row_launches(points, Extent(rows), vector, 1024, 16)
    threads = [launch.threads for launch in launches]
    growing = threads[:-1] if threads[-1:] == [512] else threads  # the last is for rows not kept
    assert growing == sorted(set(growing))
    for launch in launches:
        assert launch.threads * launch.rows <= 1024
        assert launch.threads % 32 == 0 or 32 % launch.threads == 0
        assert launch.threads * vector < points + 32 * vector  # at most a warp idles


@pytest.mark.parametrize("points", [1, 2, 24, 1000, 100000])
@pytest.mark.parametrize("across", [1, 7, 32, 4096])
def test_launches_of_columns_are_legal(points, across):
    for launch in column_launches(points, Extent(across), Extent(across), 1, 1024):
        assert launch.threads * launch.rows <= 1024


@pytest.mark.parametrize("points", [1, 30, 33, 1000, 4096, 10**6])
@pytest.mark.parametrize("rows", [1, 3, 4096])
def test_flat_launches_are_legal(points, rows):
    launch = flat_launch(Extent(points), Extent(rows), 4)
    assert launch.threads * launch.rows <= 1024
    assert launch.chunk in (0, launch.threads * launch.vector)


# -- plans as data ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GROUPS)
def test_a_plan_travels_as_json(name):
    func, plan = planned(GROUPS[name]())
    again = KernelPlan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    assert write_kernel(func, again).script() == write_kernel(func, plan).script()


def test_damaged_plans_are_refused():
    _, plan = planned(module(softmax(-1), (64, 1000)))
    data = plan.to_json()
    with pytest.raises(ValueError, match="diagonal"):
        KernelPlan.from_json({**data, "mode": "diagonal"})
    with pytest.raises(ValueError, match="nowhere"):
        KernelPlan.from_json({**data, "placement": ["nowhere"]})
    with pytest.raises(KeyError):
        KernelPlan.from_json({key: data[key] for key in data if key != "threads"})


OTHERS = {
    "more_nests": module(merged, (4, 6, 50)),
    "fewer_nests": GROUPS["bias_gelu"](),
    "other_axis": module(softmax(0), (4, 64, 64)),
    "other_rank": module(softmax(-1), (4, 64)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_plan_of_another_function_is_refused(name):
    _, plan = planned(module(softmax(1), (4, 64, 64)))
    with pytest.raises(ValueError, match="plan"):
        write_kernel(group_func(OTHERS[name]), plan)
