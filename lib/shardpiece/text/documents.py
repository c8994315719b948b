"""Documents: an Arrow text column as one contiguous array of valid UTF-8, without a Python object per document."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardpiece.errors import ConfigError, DocumentError
from shardpiece.text.utf8_kernels import is_utf8

INVALID_UTF8 = ("replace", "error")


@dataclass(frozen=True)
class Documents:
    """``data``: uint8, the UTF-8 bytes of all documents, one after the other; ``offsets``: int64 [n + 1], document d
    is data[offsets[d]:offsets[d + 1]]. ``nulls``, ``empty`` (nulls not among them) and ``replaced`` (documents with
    invalid UTF-8 that became U+FFFD) are counts."""

    data: np.ndarray
    offsets: np.ndarray
    nulls: int = 0
    empty: int = 0
    replaced: int = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def size(self) -> int:
        """Bytes of text."""
        return int(self.offsets[-1] - self.offsets[0])

    def text(self, d: int) -> str:
        return self.data[self.offsets[d] : self.offsets[d + 1]].tobytes().decode()

    @classmethod
    def from_strings(cls, texts: list[str]) -> "Documents":
        """Lone surrogates, which UTF-8 cannot hold, become U+FFFD; a high one followed by a low one is joined."""
        encoded = []
        replaced = 0
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"expected texts, not {type(text).__name__}")
            try:
                encoded.append(text.encode())
            except UnicodeEncodeError:
                encoded.append(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode())
                replaced += 1
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(raw) for raw in encoded], out=offsets[1:])
        offsets.flags.writeable = False
        data = np.frombuffer(b"".join(encoded), np.uint8)
        return cls(data, offsets, empty=int((np.diff(offsets) == 0).sum()), replaced=replaced)

    @classmethod
    def from_arrow(cls, column: pa.Array | pa.ChunkedArray, invalid_utf8: str = "replace") -> "Documents":
        """Take a string or binary column (large, view and dictionary types too); nulls become empty documents.

        ``invalid_utf8``: "replace" gives what Python's bytes.decode(errors="replace") gives, "error" raises
        DocumentError with the index of the first bad document.
        """
        if invalid_utf8 not in INVALID_UTF8:
            raise ConfigError(f"invalid_utf8 {invalid_utf8!r} is not one of {', '.join(INVALID_UTF8)}")
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        if pa.types.is_dictionary(column.type):
            values = column.dictionary.cast(pa.large_binary())  # together they may pass 2 GiB
            column = pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
        if pa.types.is_null(column.type):
            column = column.cast(pa.large_binary())
        binary = column.cast(pa.large_binary(), safe=False)
        nulls = binary.null_count
        if nulls:
            binary = pc.fill_null(binary, b"")
        replaced = 0
        data, offsets = _buffers(binary)
        if not is_utf8(data, offsets):
            binary, replaced = _repair(binary, invalid_utf8)
            data, offsets = _buffers(binary)
        empty = int((np.diff(offsets) == 0).sum()) - nulls
        return cls(data, offsets, nulls, empty, replaced)

    @classmethod
    def raw(cls, column: pa.LargeBinaryArray) -> "Documents":
        """Bytes as they are, valid UTF-8 or not; the column must have no nulls."""
        return cls(*_buffers(column))


@dataclass(frozen=True)
class Words:
    """What a pre-tokenizer makes of documents. ``data``: uint8, the words' UTF-8 bytes one after the other: the
    documents' own array, or a new one where text was removed or added. ``start``: where the first word begins;
    ``ends``: int64, where each word ends and the next one begins; ``document_ends``: int64 [documents], the number of
    words up to and including each document. No word is empty. ``at_start``: bool [documents], whether the first word of
    each document begins where the document does; None: all do."""

    data: np.ndarray
    start: int
    ends: np.ndarray
    document_ends: np.ndarray
    at_start: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Bytes of all words."""
        return int(self.ends[-1]) - self.start if len(self.ends) else 0

    def to_texts(self) -> list[list[str]]:
        """The words of each document as texts; bytes that are no characters (as ``byte`` makes them) as \\xNN."""
        return [[word.decode(errors="backslashreplace") for word in words] for words in self.to_list()]

    def to_list(self) -> list[list[bytes]]:
        """The words of each document, as a Python object per word."""
        raw = self.data.tobytes()
        words, start = [], self.start
        for end in self.ends.tolist():
            words.append(raw[start:end])
            start = end
        borders = [0, *self.document_ends.tolist()]
        return [words[a:b] for a, b in pairwise(borders)]


def _buffers(binary: pa.LargeBinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Zero-copy, read-only views of a column's bytes and offsets (kernels are compiled for read-only input)."""
    n = len(binary)
    _, offsets, data = binary.buffers()
    offsets = np.frombuffer(offsets, np.int64, n + 1, binary.offset * 8) if n else np.frombuffer(bytes(8), np.int64)
    data = np.frombuffer(data if data is not None and data.size else b"", np.uint8)
    offsets.flags.writeable = data.flags.writeable = False
    return data, offsets


def _repair(binary: pa.Array, invalid_utf8: str) -> tuple[pa.Array, int]:
    """Replace invalid sequences document by document, or raise for the first document that has one."""
    fixed = []
    replaced = 0
    for index, scalar in enumerate(binary):
        raw = scalar.as_py()
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            if invalid_utf8 == "error":
                raise DocumentError(
                    index, f"invalid UTF-8 at byte {error.start} of the document (invalid_utf8: error)"
                ) from None
            raw = raw.decode(errors="replace").encode()
            replaced += 1
        fixed.append(raw)
    return pa.array(fixed, pa.large_binary()), replaced
