"""Checkpoints of a training: the merges so far, in a file beside the tokenizer to be.

The merge loop is deterministic, so its merges are all there is to know: the words are merged again at the start, much faster
than the merges were found.
"""

import io
import time
from collections.abc import Callable

import numpy as np

from shardpiece import storage
from shardpiece.errors import FormatError
from shardpiece.pipeline.outputs import STARTED
from shardpiece.pipeline.progress import log

CHECKPOINT_FILE = "_checkpoint.npy"


class Checkpoint:
    """One training's checkpoint in ``directory``, written at most every ``seconds``; ``key``: that of the training, which
    no other may go on from; ``start``: marks the output as this training's, called once before anything is written."""

    def __init__(self, directory: str, key: str, seconds: float, start: Callable[[], None]):
        self._seconds, self._start, self._started = seconds, start, False
        self._path = storage.join(directory, CHECKPOINT_FILE)
        self._last = time.monotonic()

    def start(self) -> None:
        if not self._started:
            self._start()
            self._started = True

    def offer(self, merges: Callable[[], np.ndarray]) -> None:
        """Write what ``merges()`` gives (int64 [m, 3]) if it is time."""
        if time.monotonic() - self._last >= self._seconds:
            self.write(merges())

    def write(self, merges: np.ndarray) -> None:
        self.start()
        buffer = io.BytesIO()
        np.save(buffer, merges, allow_pickle=False)
        storage.write_bytes(self._path, buffer.getvalue())
        self._last = time.monotonic()
        log(f"train: checkpoint, {len(merges):,} merges")


def read_checkpoint(directory: str, key: str) -> np.ndarray | None:
    """The merges and counts (int64 [m, 3]) of an earlier run of the training ``key``; None when there are none. Raises
    FormatError when the file is damaged."""
    path = storage.join(directory, CHECKPOINT_FILE)
    try:
        started = storage.read_json(storage.join(directory, STARTED)).get("key")
    except FormatError:
        return None
    if started != key or not storage.exists(path):
        return None
    raw = storage.read_bytes(path)
    try:
        version = np.lib.format.read_magic(io.BytesIO(raw))
        if version != (1, 0):
            raise ValueError(f"version {version}")
        buffer = io.BytesIO(raw)
        buffer.seek(8)
        shape, _, dtype = np.lib.format.read_array_header_1_0(buffer)
        if dtype != np.int64 or len(shape) != 2 or shape[1] != 3 or len(raw) - buffer.tell() != 24 * shape[0]:
            raise ValueError("it holds no merges")
        merges = np.frombuffer(raw, np.int64, offset=buffer.tell()).reshape(shape)
        if len(merges) and (merges[:, :2].min() < 0 or merges[:, :2].max() >= 1 << 31 or merges[:, 2].min() < -1):
            raise ValueError("it holds what are no merges")
    except (ValueError, EOFError, OverflowError) as error:
        raise FormatError(f"{path}: damaged ({error}); train without --resume") from None
    return merges
