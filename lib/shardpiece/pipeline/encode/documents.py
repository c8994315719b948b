"""Documents to token ids on executors: read, chosen, encoded, once for every time that a document is taken."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Broadcast

from shardpiece import storage
from shardpiece.corpus.base import Batch, Selection
from shardpiece.corpus.order import Placement
from shardpiece.pipeline.encode.warm_words import WarmWords
from shardpiece.pipeline.tasks import Counters, document_errors
from shardpiece.shards.formats.base import TokenBatch
from shardpiece.shards.rows import take_rows
from shardpiece.shards.statistics import Statistics
from shardpiece.shards.token_buffer import TokenBuffer
from shardpiece.text.documents import Documents
from shardpiece.tokenizer import packed
from shardpiece.tokenizer.sampling import Sampling, document_keys
from shardpiece.tokenizer.tokenizer import Tokenizer

# Of the documents that are encoded, and of what is left out on the way: by where and sample, and lines that are bad.
STATISTICS = ("documents", "null_documents", "empty_documents", "replaced_documents", "bytes", "tokens",
              "filtered_documents", "bad_rows")  # fmt: skip
# What is noted of a document: its text was null, empty, or had invalid UTF-8; it was left out for that it has no text.
NULL, EMPTY, REPLACED, LEFT_OUT = 1, 2, 4, 8
# Text that is split, encoded and copied in one go: its words and ids are still in the processor's cache for the next step.
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Encoding:
    """What decides the ids of a document. ``before``, ``after``: ids around each one; ``sampling``: None for the one
    segmentation of the model."""

    special_tokens_in_text: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    keep_empty: bool
    sampling: Sampling | None = None

    def of_copy(self, copy: int) -> "Encoding":
        """Of a document's further copies: with sampling, those of further epochs."""
        if self.sampling is None or not copy:
            return self
        return replace(self, sampling=replace(self.sampling, epoch=self.sampling.epoch + copy))


@dataclass(frozen=True)
class WorkerTokenizer:
    """``packed``: the tokenizer; ``words``: what its encoder meets first; ``cache_bytes``: of its cache of words."""

    packed: bytes
    words: WarmWords | None
    cache_bytes: int

    @property
    def key(self) -> str:
        """Equal for what builds the same encoder with the same words in it."""
        words = b"" if self.words is None else self.words.data.tobytes()
        return f"{storage.checksum_bytes(self.packed)} {storage.checksum_bytes(words)} {self.cache_bytes}"

    def without_words(self) -> Tokenizer:
        return packed.unpack(self.packed, self.cache_bytes)

    def build(self) -> Tokenizer:
        tokenizer = self.without_words()
        if self.words is not None:
            self.words.encode_with(tokenizer)
        return tokenizer


@dataclass(frozen=True)
class Encoded:
    """Documents of one batch: ``rows``, a row for each, those that are left out among them, without tokens. ``copy``:
    which time they are taken, from 0; ``flags``: uint8, of NULL, EMPTY, REPLACED, LEFT_OUT; ``text_bytes``: int64;
    ``ids`` and ``groups`` where anything goes by them; ``keys``: uint64, what a shuffle goes by; ``places``: int64, where
    ``destination`` said they go."""

    rows: TokenBatch
    copy: int
    flags: np.ndarray
    text_bytes: np.ndarray
    ids: pa.Array | None
    groups: pa.Array | None
    keys: np.ndarray | None
    places: np.ndarray

    def written(self) -> TokenBatch:
        """The rows that go into a shard."""
        return without_left_out(self.rows, self.flags)

    def written_keys(self) -> np.ndarray | None:
        return None if self.keys is None else self.keys[self.flags & LEFT_OUT == 0]

    def count(self, statistics: dict[str, int]) -> None:
        add_statistics(statistics, self.rows, self.flags, self.text_bytes)

    def count_groups(self, counted: Statistics) -> None:
        if self.groups is not None:
            kept = self.flags & LEFT_OUT == 0
            lengths = np.diff(self.rows.offsets)
            counted.add_groups(self.groups.filter(pa.array(kept)), self.text_bytes[kept], lengths[kept])


def without_left_out(rows: TokenBatch, flags: np.ndarray) -> TokenBatch:
    """The rows that are not LEFT_OUT."""
    kept = flags & LEFT_OUT == 0
    return rows if kept.all() else take_rows(rows, np.flatnonzero(kept))


def add_statistics(statistics: dict[str, int], rows: TokenBatch, flags: np.ndarray, text_bytes: np.ndarray) -> None:
    """Add documents, those left out among them, to STATISTICS."""
    statistics["documents"] += int((flags & LEFT_OUT == 0).sum())
    statistics["null_documents"] += int((flags & NULL != 0).sum())
    statistics["empty_documents"] += int((flags & EMPTY != 0).sum())
    statistics["replaced_documents"] += int((flags & REPLACED != 0).sum())
    statistics["bytes"] += int(text_bytes.sum())
    statistics["tokens"] += len(rows.tokens)


@dataclass(frozen=True)
class DocumentEncoder:
    """What encodes documents, the same for all tasks of a run. ``dtype``: of the ids; ``with_ids``: whether rows carry the
    documents' ids."""

    selection: Selection
    invalid_utf8: str
    dtype: np.dtype
    with_ids: bool
    encoding: Encoding
    placement: Placement
    tokenizer: Broadcast  # of WorkerTokenizer
    tokenizer_key: str  # its ``key``
    counters: Counters

    @property
    def goes_by_ids(self) -> str:
        """What needs an id of every document; "" if nothing does."""
        return self.placement.goes_by_ids or ("sampling" if self.encoding.sampling is not None else "")

    def encode(
        self,
        batches: Iterator[Batch],
        statistics: dict[str, int] | None = None,
        destination: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> Iterator[Encoded]:
        """Documents as often as they are taken. ``statistics``: gets the filtered_documents and bad_rows added;
        ``destination``: from shuffle keys (uint64 [n]) where documents go (int64 [n]), -1 for those that are not wanted; by
        default all are, at place 0."""
        tokenizer = worker_tokenizer(self.tokenizer_key, self.tokenizer)
        for read in self.read(batches):
            if statistics is not None:
                statistics["filtered_documents"] += read.batch.filtered_rows
                statistics["bad_rows"] += read.batch.bad_rows
            yield from self._encode(tokenizer, read, destination)

    def read(self, batches: Iterator[Batch]) -> Iterator["Read"]:
        """Documents with what anything goes by."""
        columns = self.selection.columns
        for batch in batches:
            ids = groups = None
            if self.with_ids or self.goes_by_ids:
                ids = batch.ids(columns.id, self.goes_by_ids)
            if columns.group:
                groups = batch.plain(columns.group)
            yield Read(batch, ids, groups)

    def _encode(
        self, tokenizer: Tokenizer, read: "Read", destination: Callable[[np.ndarray], np.ndarray] | None
    ) -> Iterator[Encoded]:
        places = self._places(read, destination)
        wanted = np.any([of_copy >= 0 for of_copy in places], axis=0)
        if not wanted.all():
            read, places = read.filter(wanted), [of_copy[wanted] for of_copy in places]
        if not len(read.batch):
            return
        rows = flags = sizes = None
        for copy, of_copy in enumerate(places):
            chosen = of_copy >= 0
            mine = read if chosen.all() else read.filter(chosen)
            if self.encoding.sampling is not None:
                found = self._rows(tokenizer, mine, self.encoding.of_copy(copy))
            else:
                if rows is None:
                    rows, flags, sizes = self._rows(tokenizer, read, self.encoding)
                found = rows, flags, sizes
                if mine is not read:
                    found = take_rows(rows, np.flatnonzero(chosen)), flags[chosen], sizes[chosen]
            self.counters.documents.add(len(mine.batch))
            self.counters.bytes.add(int(found[2].sum()))
            self.counters.tokens.add(len(found[0].tokens))
            keys = self.placement.keys(mine.ids, copy) if self.placement.shuffled else None
            yield Encoded(found[0], copy, *found[1:], mine.ids, mine.groups, keys, of_copy[chosen])

    def _places(self, read: "Read", destination: Callable[[np.ndarray], np.ndarray] | None) -> list[np.ndarray]:
        """For each copy int64 [n], where it goes; -1 for nowhere."""
        n = len(read.batch)
        copies = self.placement.copies(read.ids, read.groups)
        places = []
        for copy in range(1 if copies is None else int(copies.max(initial=1))):
            of_copy = np.zeros(n, np.int64)
            if destination is not None:
                of_copy = destination(self.placement.keys(read.ids, copy))
            places.append(of_copy if copies is None else np.where(copies > copy, of_copy, -1))
        return places

    def _rows(
        self, tokenizer: Tokenizer, read: "Read", encoding: Encoding
    ) -> tuple[TokenBatch, np.ndarray, np.ndarray]:
        """(a row for each document, flags, bytes of text)."""
        column = read.batch[read.batch.text_column]
        with document_errors(read.batch):
            documents = Documents.from_arrow(column, self.invalid_utf8)
        buffer = TokenBuffer(
            self.dtype, tokenizer.vocab_size, encoding.before, encoding.after, encoding.keep_empty,
            len(documents), documents.size,
        )  # fmt: skip
        keys = None if encoding.sampling is None else document_keys(read.ids, encoding.sampling)
        for first, chunk in chunks(documents):
            chunk_keys = None if keys is None else keys[first : first + len(chunk)]
            with document_errors(read.batch, first):
                tokens, offsets = tokenizer.encode_documents(
                    chunk, encoding.special_tokens_in_text, encoding.sampling, chunk_keys
                )
            buffer.add(tokens, offsets, chunk.offsets)
        tokens, offsets = buffer.take()
        sizes = np.diff(documents.offsets)
        flags = _flags(column, sizes, documents)
        if not encoding.keep_empty:
            full = sizes > 0
            flags[~full] |= LEFT_OUT
            lengths = np.zeros(len(sizes), np.int64)
            lengths[full] = np.diff(offsets)
            offsets = np.concatenate([[0], np.cumsum(lengths)])
        carried = self.selection.columns.metadata
        metadata = read.batch.metadata(carried) if carried else None
        return TokenBatch(tokens, offsets, read.ids if self.with_ids else None, metadata), flags, sizes


@dataclass(frozen=True)
class Read:
    """A batch as it was read, with the columns that anything goes by, as strings."""

    batch: Batch
    ids: pa.Array | None
    groups: pa.Array | None

    def text_bytes(self) -> np.ndarray:
        """int64 [n]: the bytes of each text, 0 of a null."""
        column = self.batch[self.batch.text_column].cast(pa.large_binary(), safe=False)
        return np.asarray(pc.binary_length(column).fill_null(0))

    def filter(self, chosen: np.ndarray) -> "Read":
        mask = pa.array(chosen)
        ids, groups = (None if column is None else column.filter(mask) for column in (self.ids, self.groups))
        return Read(self.batch.filter(chosen), ids, groups)


def _flags(column: pa.Array, sizes: np.ndarray, documents: Documents) -> np.ndarray:
    flags = np.where(sizes == 0, np.uint8(EMPTY), np.uint8(0))
    if documents.nulls:
        flags[np.asarray(column.is_null())] = NULL
    if documents.replaced:
        for d, raw in enumerate(column.cast(pa.large_binary(), safe=False).to_pylist()):
            try:
                (raw or b"").decode()
            except UnicodeDecodeError:
                flags[d] |= REPLACED
    return flags


def chunks(documents: Documents) -> Iterator[tuple[int, Documents]]:
    """Consecutive documents of about a megabyte of text together, or one; each with its first document's number."""
    first = 0
    while first < len(documents):
        end = int(np.searchsorted(documents.offsets, documents.offsets[first] + _CHUNK_BYTES, side="right")) - 1
        end = min(max(end, first + 1), len(documents))
        yield first, Documents(documents.data, documents.offsets[first : end + 1])
        first = end


_BUILT: dict[str, Tokenizer] = {}


def worker_tokenizer(key: str, broadcast: Broadcast) -> Tokenizer:
    """The broadcast tokenizer, built once per worker process."""
    if key not in _BUILT:
        _BUILT.clear()
        _BUILT[key] = broadcast.value.build()
    return _BUILT[key]
