"""Budgets: what is refused and how it says so, and what the device grants."""

import dataclasses
import inspect
import re
import warnings

import pytest
import tvm

from tvm_fusion.device import Device
from tvm_fusion.device.gpu import OPT_IN_SHARED_KIB
from tvm_fusion.errors import LimitsError, PolicyError, TVMFusionError
from tvm_fusion.limits import Limits
from tvm_fusion.policy import (
    Dominator,
    Partition,
    Policy,
    SingleChain,
    get_policy,
    policies,
    register_policy,
)
from tvm_fusion.policy import base as policy_base

KIB = 1024


def cuda(**attributes: object) -> tvm.target.Target:
    """A CUDA target with those attributes and no others."""
    return tvm.target.Target({"kind": "cuda", **attributes})


# -- limits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"registers_per_thread": 8},
            "Limits.registers_per_thread is 8: no kernel can meet it, give 16 or more",
        ),
        ({"min_occupancy": 0.0}, "Limits.min_occupancy is 0.0: give more than 0 and at most 1"),
        ({"min_occupancy": 1.5}, "Limits.min_occupancy is 1.5: give more than 0 and at most 1"),
        ({"min_occupancy": "half"}, "Limits.min_occupancy is 'half': give a number"),
        ({"compile_seconds": 0}, "Limits.compile_seconds is 0: give a positive number"),
        (
            {"shared_memory_bytes": "48KiB"},
            "Limits.shared_memory_bytes is '48KiB': give a number of bytes, 'opt-in', or None "
            "for the target's own limit",
        ),
        (
            {"shared_memory_bytes": -1},
            "Limits.shared_memory_bytes is -1: no kernel can meet it, give 0 or more",
        ),
        (
            {"shared_memory_bytes": 0.5},
            "Limits.shared_memory_bytes is 0.5: give an integer",
        ),
        ({"max_depth": 0}, "Limits.max_depth is 0: no kernel can meet it, give 1 or more"),
        ({"max_depth": "8"}, "Limits.max_depth is '8': give an integer"),
        (
            {"max_kernel_args": 1},
            "Limits.max_kernel_args is 1: no kernel can meet it, give 2 or more",
        ),
        ({"max_kernel_args": 2.0}, "Limits.max_kernel_args is 2.0: give an integer"),
        (
            {"max_group_size": 0},
            "Limits.max_group_size is 0: no kernel can meet it, give 1 or more",
        ),
        ({"max_group_size": True}, "Limits.max_group_size is True: give an integer"),
        ({"max_fusions": -1}, "Limits.max_fusions is -1: no kernel can meet it, give 0 or more"),
        ({"max_fusions": False}, "Limits.max_fusions is False: give an integer"),
    ],
    ids=lambda value: (
        "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else ""
    ),
)
def test_a_limit_that_no_kernel_meets_or_nobody_checks_is_refused(arguments, message):
    with pytest.raises(LimitsError) as caught:
        Limits(**arguments)
    assert str(caught.value) == message
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TVMFusionError)


@pytest.mark.parametrize(
    "arguments",
    [
        {"shared_memory_bytes": 0},
        {"shared_memory_bytes": "opt-in"},
        {"max_depth": 1},
        {"max_kernel_args": 2},
        {"max_group_size": 1},
        {"max_fusions": 0},
    ],
    ids=str,
)
def test_the_smallest_value_of_each_limit_is_accepted(arguments):
    assert Limits(**arguments).as_dict() == {**Limits().as_dict(), **arguments}


def test_no_limit_on_kernel_arguments_is_refused_since_there_always_is_one():
    with pytest.raises(LimitsError, match="max_kernel_args is None"):
        Limits(max_kernel_args=None)


def test_the_defaults_leave_everything_to_the_target_and_the_policy():
    assert Limits().as_dict() == {
        "shared_memory_bytes": None,
        "max_depth": None,
        "registers_per_thread": None,
        "min_occupancy": None,
        "max_kernel_args": 512,
        "max_group_size": None,
        "max_fusions": None,
        "compile_seconds": None,
    }


def test_limits_cannot_be_changed_and_may_be_keys():
    limits = Limits(max_depth=4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        limits.max_depth = 5
    assert {limits: 1}[Limits(max_depth=4)] == 1


# -- the device ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "kib"),
    [
        ("sm_70", 96),
        ("sm_75", 64),
        ("sm_80", 163),
        ("sm_86", 99),
        ("sm_89", 99),
        ("sm_90", 227),
        ("sm_90a", 227),
    ],
)
def test_opt_in_gives_what_the_architecture_grants_on_request(arch, kib):
    device = Device.from_target(
        cuda(arch=arch, max_shared_memory_per_block=48 * KIB, max_threads_per_block=1024)
    )
    assert device.shared_memory_budget(Limits(shared_memory_bytes="opt-in")) == kib * KIB
    assert device.shared_memory_budget(Limits()) == 48 * KIB


@pytest.mark.parametrize(
    ("tag", "kib"),
    [
        ("nvidia/nvidia-v100", 96),
        ("nvidia/nvidia-t4", 64),
        ("nvidia/nvidia-a100", 163),
        ("nvidia/nvidia-h100", 227),
    ],
)
def test_the_tags_of_tvm_give_their_figures_without_a_warning(tag, kib):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        device = Device.from_target(tvm.target.Target(tag))
    assert device.shared_memory_bytes == 48 * KIB
    assert device.opt_in_shared_memory_bytes == kib * KIB
    assert (device.threads_per_block, device.warp_threads) == (1024, 32)


def test_every_architecture_grants_at_least_the_static_limit_on_request():
    assert min(OPT_IN_SHARED_KIB.values()) >= 48


def test_an_architecture_that_is_not_in_the_table_grants_the_static_limit():
    device = Device.from_target(
        cuda(arch="sm_61", max_shared_memory_per_block=48 * KIB, max_threads_per_block=1024)
    )
    assert device.opt_in_shared_memory_bytes == 48 * KIB


def test_a_target_that_says_more_than_the_table_is_believed():
    device = Device.from_target(
        cuda(arch="sm_75", max_shared_memory_per_block=100 * KIB, max_threads_per_block=1024)
    )
    assert device.shared_memory_budget(Limits(shared_memory_bytes="opt-in")) == 100 * KIB


@pytest.mark.parametrize(
    ("wanted", "granted"),
    [(0, 0), (16 * KIB, 16 * KIB), (96 * KIB, 96 * KIB), (10**9, 163 * KIB), (None, 48 * KIB)],
)
def test_a_budget_in_bytes_is_granted_up_to_the_opt_in_limit(wanted, granted):
    device = Device.from_target(tvm.target.Target("nvidia/nvidia-a100"))
    assert device.shared_memory_budget(Limits(shared_memory_bytes=wanted)) == granted


def test_a_target_that_says_little_gives_the_defaults_and_one_warning():
    target = cuda(arch="sm_80")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        device = Device.from_target(target)
    silent = [
        key
        for key in ("max_shared_memory_per_block", "max_threads_per_block")
        if target.attrs.get(key) is None
    ]
    assert silent, "TVM fills these in now: the default is not needed any more"
    assert [str(w.message) for w in caught] == [
        f"target 'cuda' does not say {', '.join(silent)}: assuming 49152 bytes of shared memory "
        f"and 1024 threads per block; name a tag like 'nvidia/nvidia-a100' to be exact"
    ]
    assert device == Device("sm_80", 48 * KIB, 163 * KIB, 1024, 32)


def test_a_target_that_is_no_gpu_gives_the_defaults_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        device = Device.from_target(tvm.target.Target("llvm"))
    assert device == Device("llvm", 48 * KIB, 48 * KIB, 1024, 32)


# -- policies by name ----------------------------------------------------------------------


@pytest.fixture
def registry(monkeypatch):
    """The table of policies, put back afterwards."""
    monkeypatch.setattr(policy_base, "_POLICIES", dict(policy_base._POLICIES))


class Nothing:
    """A policy that fuses nothing."""

    name = "nothing"

    def partition(self, graph, limits, device, check=None):
        return Partition((), ())


def test_policies_are_found_by_name():
    assert {"dominator", "single_chain"} <= set(policies())
    assert isinstance(get_policy("dominator"), Dominator)
    assert isinstance(get_policy("single_chain"), SingleChain)


def test_every_registered_policy_goes_by_the_name_it_has():
    assert [get_policy(name).name for name in policies()] == policies()


def test_a_policy_object_is_taken_as_it_is():
    policy = Nothing()
    assert get_policy(policy) is policy
    assert isinstance(policy, Policy)


def test_an_unknown_name_is_an_error_that_tells_the_names_there_are():
    message = f"unknown policy 'greedy': choose one of {', '.join(policies())}"
    with pytest.raises(PolicyError, match=f"^{re.escape(message)}$"):
        get_policy("greedy")


@pytest.mark.parametrize("thing", [None, 3, object()], ids=["None", "int", "object"])
def test_an_object_that_is_no_policy_is_an_error_that_says_what_one_has(thing):
    message = "is no policy: give one of .*, or an object with a name and a partition method"
    with pytest.raises(PolicyError, match=message):
        get_policy(thing)


def test_a_policy_class_instead_of_an_object_is_an_error():
    assert inspect.isclass(Nothing)
    with pytest.raises(PolicyError):
        get_policy(Nothing)


@pytest.mark.usefixtures("registry")
def test_a_registered_policy_is_found_by_name():
    assert register_policy("nothing")(Nothing) is Nothing
    assert "nothing" in policies()
    assert isinstance(get_policy("nothing"), Nothing)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("name", ["nothing", "dominator"])
def test_a_name_is_registered_once(name):
    if name == "nothing":
        register_policy(name)(Nothing)
    message = f"a policy named '{name}' is registered already: choose another name"
    with pytest.raises(PolicyError, match=message):
        register_policy(name)(Nothing)
    assert isinstance(get_policy(name), Nothing if name == "nothing" else Dominator)
