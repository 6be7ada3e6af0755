"""Counts what TVM's own fusion and schedules make of a module, in a process of its own.

Some of TVM's schedule rules end the process instead of raising (float16 products on tensor cores
do); the user's build must survive the comparison.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Mapping
from dataclasses import astuple
from multiprocessing.connection import Connection

import tvm
from tvm import relax
from tvm.s_tir import dlight

from ..analysis.traffic import Totals, total
from ..errors import one_line

#: A comparison is not worth more than this many seconds.
_MOST_SECONDS = 600


def stock_module(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """What TVM's default CUDA pipeline fuses and schedules, before it is lowered.

    Reshapes become views before scheduling, as in our own build, so that the counts compare.

    Parameters
    ----------
    mod : tvm.IRModule
        Legalized or not.
    target : tvm.target.Target
        A CUDA target.
    """
    gpu = dlight.gpu
    rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())
    passes = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.RewriteDataflowReshape(),
        dlight.ApplyDefaultSchedule(*rules),
    ]
    with target:
        return tvm.transform.Sequential(passes)(mod)


def stock_totals(
    mod: tvm.IRModule, target: tvm.target.Target, assume: Mapping[str, int] | None = None
) -> tuple[Totals | None, str | None]:
    """Kernels and bytes of TVM's own build, or why there is none.

    Parameters
    ----------
    mod : tvm.IRModule
        Legalized or not.
    target : tvm.target.Target
        A CUDA target.
    assume : mapping of str to int, optional
        Values of symbolic extents by name.

    Returns
    -------
    totals : Totals or None
    failure : str or None
        A sentence, where there are no totals.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        return None, "stock is not counted: this platform cannot fork a process for it"
    # Forked, since a module cannot be handed to a fresh process: TVM's JSON has none for some.
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_count, args=(sender, mod, target, assume))
    child.start()
    sender.close()
    try:
        answer = receiver.recv() if receiver.poll(_MOST_SECONDS) else None
    except EOFError:
        child.join()
        return None, f"stock is not counted: TVM's own passes {_end_of(child.exitcode)}"
    finally:
        child.kill()
        child.join()
    if answer is None:
        return None, f"stock is not counted: TVM's own passes took over {_MOST_SECONDS} seconds"
    if isinstance(answer, str):
        return None, f"stock is not counted: TVM's own passes failed with {answer}"
    return Totals(*answer), None


def _count(
    sender: Connection,
    mod: tvm.IRModule,
    target: tvm.target.Target,
    assume: Mapping[str, int] | None,
) -> None:
    """What the child does: send four numbers, or one line saying what went wrong."""
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # TVM's own handler prints a backtrace
    try:
        sender.send(astuple(total(stock_module(mod, target), assume)))
    except Exception as error:  # whatever TVM raises: the parent puts it into a sentence
        sender.send(one_line(error))
    os._exit(0)  # without flushing what the parent had in its buffers


def _end_of(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"crashed with {signal.Signals(-exitcode).name}"
    return f"ended with exit status {exitcode}"
