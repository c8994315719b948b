"""Where compiled kernels are kept between processes, and the decorator that puts them there.

Numba's own cache looks only at the file of the function it compiles: a kernel that calls one of another file would go
on running old code after that file has changed. The directory is therefore named after the sources of all kernels. It
lies in NUMBA_CACHE_DIR, else in the user's cache, else (read-only homes of cluster workers) in a private temporary
directory. Numba loads what it finds there as code, so nobody else may be able to write to it.
"""

import hashlib
import os
import stat
import tempfile
from pathlib import Path

import numba
import numpy as np
from numba.core import config


def _source_hash() -> str:
    package = Path(__file__).parent
    state = hashlib.sha256(numba.__version__.encode())
    for path in sorted([*package.rglob("*_kernels.py"), package / "intrinsics.py", package / "text" / "dfa.py"]):
        state.update(path.read_bytes())
    return state.hexdigest()[:16]


def _private(directory: Path) -> bool:
    """Whether the directory exists or can be made, is ours, is writable, and nobody else can write to it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError:
        return False
    own = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return own and os.access(directory, os.W_OK | os.X_OK)


def _choose() -> str:
    name = f"shardpiece-{_source_hash()}"
    bases = []
    if os.environ.get("NUMBA_CACHE_DIR"):
        bases.append(Path(os.environ["NUMBA_CACHE_DIR"]))
    bases.append(Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "shardpiece")
    bases.append(Path(tempfile.gettempdir()) / f"shardpiece-{os.geteuid()}")
    for base in bases:
        if _private(base / name):
            return str(base / name)
    return tempfile.mkdtemp(prefix="shardpiece-kernels-")


CACHE_DIRECTORY = _choose()


def kernel(function):
    """Compile with Numba on first call, without the GIL, and keep the result in CACHE_DIRECTORY."""
    return _cached(function)


def plain_kernel(function):
    """A ``kernel`` that makes no array. It counts no references to its arguments, as Numba otherwise does with atomic
    instructions at every call of another kernel: ten times faster where short functions call each other in a loop."""
    return _cached(function, _nrt=False)


def inlined_kernel(function):
    """A ``plain_kernel`` whose code is put wherever it is called: for short ones in a loop that LLVM would call."""
    return _cached(function, _nrt=False, forceinline=True)


def _cached(function, **options):
    before = config.CACHE_DIR
    config.CACHE_DIR = CACHE_DIRECTORY
    try:
        return numba.njit(nogil=True, cache=True, **options)(function)
    finally:
        config.CACHE_DIR = before


def read_only(array: np.ndarray) -> np.ndarray:
    """A view that cannot be written to: kernels are compiled once more for input that could be."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array
