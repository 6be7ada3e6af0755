"""Names and variables for functions that passes add to a module."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax


class Names:
    """Function names of a module, and new ones that clash with none of them."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self._taken = {gvar.name_hint for gvar in mod.functions}

    def new_var(self, name: str, function: Any) -> Any:
        """A global variable called ``name``, or ``name_1`` and so on where that is taken."""
        candidate, n = name, 0
        while candidate in self._taken:
            n += 1
            candidate = f"{name}_{n}"
        self._taken.add(candidate)
        return function_var(candidate, function)


def function_var(name: str, function: Any) -> Any:
    """A global variable that is typed as ``function``, as TVM's normaliser wants it."""
    gvar = tvm.ir.GlobalVar(name)
    relax.expr._update_type(gvar, function.ty)
    return gvar
