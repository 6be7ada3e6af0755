"""One point of a nest, or the lanes of a vector of points, while its code is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .number import Number


@dataclass
class Point:
    """Where in a row the code stands, and the statements collected there.

    Parameters
    ----------
    values : mapping of int to Number
        The value of every class that the nest walks, and of the parallel classes.
    classes : tuple of int
        The local classes that the nest walks, in order.
    element : expression
        Which of the thread's own elements this is.
    slot : expression
        The place of that element in an array in shared memory.
    lane : tirx.Var or None
        The variable of the loop over lanes; None where there is one lane only.
    lanes : int
        Number of lanes.
    inside : expression or None
        The condition under which the point exists; None: always.
    before : list of statement
        What is done once for all lanes, in front of the loop over them.
    body : list of statement
        What is done in each lane, in front of the statements of the nest.
    after : list of statement
        What is done once for all lanes, behind the loop over them.
    known : dict
        Values that have a name by now.
    """

    values: Mapping[int, Number]
    classes: tuple[int, ...]
    element: Any
    slot: Any
    lane: Any = None
    lanes: int = 1
    inside: Any = None
    before: list[Any] = field(default_factory=list)
    body: list[Any] = field(default_factory=list)
    after: list[Any] = field(default_factory=list)
    known: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Guard:
    """The condition under which something is loaded.

    Parameters
    ----------
    condition : expression or None
        The condition; None: always.
    same_in_lanes : bool
        It holds in all lanes or in none, so that what it guards can be done in front of them.
    """

    condition: Any = None
    same_in_lanes: bool = True


ALWAYS = Guard()
