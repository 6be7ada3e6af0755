"""Where compiled code is kept, so that it is compiled once.

An entry is named by a hash of all that it depends on, is written under another name first, and
appears by renaming: a process sees it complete or not at all, and two that make the same one at
once do no harm.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path


def cache_directory() -> Path:
    """``$TVM_FUSION_CACHE``, or ``~/.cache/tvm_fusion``; made if it is not there.

    Raises
    ------
    OSError
        There is no home, or the directory cannot be made.
    """
    chosen = os.environ.get("TVM_FUSION_CACHE")
    try:
        path = Path(chosen) if chosen else Path.home() / ".cache" / "tvm_fusion"
    except RuntimeError as error:
        raise OSError(f"{error} Set TVM_FUSION_CACHE to a directory for compiled code") from None
    path.mkdir(parents=True, exist_ok=True)
    return path


def key(parts: Iterable[str]) -> str:
    """A name for what depends on these texts and on nothing else."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode())
        digest.update(part.encode())
    return digest.hexdigest()[:24]


def cached(name: str, make: Callable[[Path], None], replace: bool = False) -> Path:
    """The entry ``name``, made by ``make`` if it is not there.

    Parameters
    ----------
    name : str
        File or directory name of the entry.
    make : callable
        Gets an empty directory, and puts a file or directory of that name into it.
    replace : bool
        Make it also if it is there.

    Returns
    -------
    pathlib.Path
    """
    entry = cache_directory() / name
    if entry.exists() and not replace:
        return entry
    with tempfile.TemporaryDirectory(dir=cache_directory(), prefix="making-") as directory:
        make(Path(directory))
        try:
            os.replace(Path(directory) / name, entry)
        except OSError:  # a directory that another process has made meanwhile
            if not entry.exists():
                raise
    return entry
