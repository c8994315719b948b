"""Files of rows behind a table of where each of them lies, in 32 bits, as mds and litdata have them: all little-endian, u32
N, u32 [N + 1] offsets from the beginning of the file, then what the format adds, then the rows.

A shard is cut into such files: NAME.000.SUFFIX, NAME.001.SUFFIX and so on, each of at most PART_BYTES, the default of both
libraries, or of one larger row. A shard without rows has none.
"""

import numpy as np

from shardpiece import storage
from shardpiece.errors import OutputError
from shardpiece.shards.formats.base import Written
from shardpiece.shards.formats.files import ShardFiles

PART_BYTES = 1 << 26
_MOST_BYTES = 2**32 - 1


class Parts:
    """``between``: what lies between the offsets and the rows."""

    def __init__(self, directory: str, name: str, format_name: str, suffix: str, between: bytes = b""):
        self._name, self._suffix, self._between = name, suffix, between
        self._format = format_name
        self._files = ShardFiles(directory, format_name)
        self._parts: list[dict] = []
        self._open: storage.HeadedFile | None = None
        self._sizes: list[np.ndarray] = []
        self._bytes = self._tokens = 0

    @property
    def files(self) -> ShardFiles:
        return self._files

    def add(self, data: bytes | np.ndarray, sizes: np.ndarray, tokens: np.ndarray) -> None:
        """Add rows of ``sizes`` bytes (int64 [rows]), one after the other in ``data``, with so many ``tokens`` each.

        Raises OutputError for a row that is larger than a file can be."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        ends = np.cumsum(sizes)
        needed = ends + 4 * np.arange(1, len(sizes) + 1)
        row = 0
        while row < len(sizes):
            if self._open is None:
                self._open = self._files.open_headed(self._part_name())
                self._bytes = 8 + len(self._between)
            before = int(needed[row - 1]) if row else 0
            end = int(np.searchsorted(needed, PART_BYTES - self._bytes + before, side="right"))
            if end <= row and self._sizes:
                self._seal()
                continue
            end = max(end, row + 1)
            first, last = int(ends[row - 1]) if row else 0, int(ends[end - 1])
            self._bytes += int(needed[end - 1]) - before
            if self._bytes > _MOST_BYTES:
                raise OutputError(
                    f"{self._format} has files of at most 4 GiB, and one document of {int(tokens[row]):,} tokens needs more: "
                    f"pack documents, or choose another format"
                )
            self._open.write(view[first:last])
            self._sizes.append(np.asarray(sizes[row:end], np.int64))
            self._tokens += int(tokens[row:end].sum())
            row = end

    def _part_name(self) -> str:
        return f"{self._name}.{len(self._parts):03}{self._suffix}"

    def _seal(self) -> None:
        sizes = np.concatenate(self._sizes)
        start = 4 + 4 * (len(sizes) + 1) + len(self._between)
        offsets = np.concatenate([[0], np.cumsum(sizes)]) + start
        header = np.concatenate([[len(sizes)], offsets]).astype("<u4").tobytes() + self._between
        self._files.seal_headed(self._part_name(), header)
        self._parts.append({"rows": len(sizes), "tokens": self._tokens})
        self._open, self._sizes, self._tokens = None, [], 0

    def seal(self) -> None:
        """No rows follow."""
        if self._sizes:
            self._seal()

    def commit(self) -> Written:
        """The files, and as "parts" the rows and tokens of each part."""
        self.seal()
        return Written(self._files.commit(), {"parts": self._parts})

    def discard(self) -> None:
        self._files.discard()


def read_offsets(path: str, file) -> np.ndarray:
    """int64 [rows + 1] of such a file, open at its beginning. Raises ValueError when it is none."""
    count = np.frombuffer(file.read(4), "<u4")
    raw = file.read(4 * (int(count[0]) + 1)) if len(count) else b""
    offsets = np.frombuffer(raw, "<u4").astype(np.int64)
    if not len(count) or len(offsets) != count[0] + 1 or offsets[0] < 4 + len(raw) or (np.diff(offsets) < 0).any():
        raise ValueError(f"{path} does not begin with a table of its rows")
    return offsets
