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
    no other may go on from."""

    def __init__(self, directory: str, key: str, seconds: float):
        self._directory, self._key, self._seconds = directory, key, seconds
        self._path = storage.join(directory, CHECKPOINT_FILE)
        self._last = time.monotonic()

    def offer(self, merges: Callable[[], np.ndarray]) -> None:
        """Write what ``merges()`` gives (int64 [m, 3]) if it is time."""
        if time.monotonic() - self._last >= self._seconds:
            self.write(merges())

    def write(self, merges: np.ndarray) -> None:
        buffer = io.BytesIO()
        np.save(buffer, merges, allow_pickle=False)
        storage.write_bytes(self._path, buffer.getvalue())
        self._last = time.monotonic()
        log(f"train: checkpoint, {len(merges):,} merges")

    def read(self) -> np.ndarray | None:
        """The merges and counts of an earlier run of the same training; None when there are none. Raises FormatError when the file is
        damaged."""
        try:
            started = storage.read_json(storage.join(self._directory, STARTED)).get("key")
        except FormatError:
            return None
        if started != self._key or not storage.exists(self._path):
            return None
        try:
            merges = np.load(io.BytesIO(storage.read_bytes(self._path)), allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise FormatError(f"{self._path}: damaged ({error}); train without --resume") from None
        if merges.dtype != np.int64 or merges.ndim != 2 or merges.shape[1] != 3:
            raise FormatError(f"{self._path}: holds no merges; train without --resume")
        return merges
