"""The command in the suite's own process: starting Python and Spark takes most of the time of one that starts."""

import contextlib
import io
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace

import pytest


def called(command: Callable[[], None], stdin: str = "", cwd=".") -> SimpleNamespace:
    """What a process would have left that ``command``, which ends with SystemExit, is the whole of: returncode, stdout and
    stderr."""
    stdin, stdout, stderr = (
        io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8", write_through=True) for raw in (stdin.encode(), b"", b"")
    )
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(cwd), warnings.catch_warnings():
        for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as left:
            command()
    out, err = (stream.buffer.getvalue().decode() for stream in (stdout, stderr))
    return SimpleNamespace(returncode=left.value.code, stdout=out, stderr=err)
