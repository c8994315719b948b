"""BPE training from a word table that the driver cannot hold: executors reduce it exactly, the driver merges.

The epochs are those of ``training.cut``. In each, one job counts the pairs of all words as merged so far, and one cuts the
words at rare pairs and adds up equal pieces; the driver gets the pieces, learns all merges above the floor from them, and
goes on at a lower floor. Tasks keep nothing: each reads its part of the table and applies all merges so far again, so that
a lost executor costs its tasks and no more.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import Broadcast, StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpiece import storage
from shardpiece.errors import FormatError
from shardpiece.pipeline.session import collect, job_errors
from shardpiece.pipeline.tasks import run_tasks
from shardpiece.text.documents import Documents
from shardpiece.training.cut import Certificate, learn_by_cutting
from shardpiece.training.cut_tables import (
    MergeTable,
    PairTable,
    PieceTable,
    Sequences,
    in_order,
    lay_out,
    pair_set,
)
from shardpiece.training.merge_loop import MAX_WORD_SYMBOLS, MergeResult
from shardpiece.words import content_kernels
from shardpiece.words import table as words

_PAIR_SCHEMA = "pair long, count long"
_PIECE_SCHEMA = "piece binary, count long"
# Keys that no pair has, for the statistics of the tasks: summed like pairs, so that a retried task counts once.
_WORDS, _SYMBOLS = -1, -2
_BATCH_ROWS = 1 << 16
# What a task holds before it hands it on: 16 bytes for each pair and 4 for each symbol, in tables that are half full.
_MOST_PAIRS = 4 << 20
_MOST_SYMBOLS = 16 << 20


def reduce_and_learn(
    session: Callable[[], SparkSession],
    directory: str,
    alphabet: Sequence[bytes],
    n_merges: int,
    *,
    symbol_ids: np.ndarray | None = None,
    **settings,
) -> tuple[MergeResult, Certificate]:
    """What ``learn_merges_cut`` returns for the word table in ``directory``, summed over its groups.

    ``session``: gives the Spark session. ``alphabet``: the spelling of each base symbol; ``symbol_ids``: int32 [256], the
    base symbol of each byte, -1 for none. ``settings``: those of ``learn_by_cutting`` and ``learn_merges``. Words of more
    than MAX_WORD_SYMBOLS bytes are left out.
    Raises as ``learn_merges_cut``, and FormatError for a table that cannot be read.
    """
    directory = storage.absolute(directory)
    manifest = words.read_manifest(directory)
    parts = [(storage.join(directory, part["name"]), part["rows"]) for part in manifest["files"]]
    ids = np.ascontiguousarray(np.arange(256) if symbol_ids is None else symbol_ids, np.int32)
    with job_errors("train"):
        return learn_by_cutting(_SparkTable(session(), parts, ids, len(alphabet)), alphabet, n_merges, **settings)


class _SparkTable:
    """The table as a ``cut.Source``."""

    def __init__(self, spark: SparkSession, parts: list[tuple[str, int]], symbol_ids: np.ndarray, first_id: int):
        self._spark = spark
        self._parts = parts
        self._symbol_ids = symbol_ids
        self._first_id = first_id
        self._merges = np.empty((0, 2), np.int32)
        self._size = (0, 0)

    def size(self) -> tuple[int, int]:
        return self._size

    def pairs(self, floor: int) -> tuple[np.ndarray, np.ndarray]:
        with _Shared(self._spark, self._merges) as merges:
            rows = self._run(_CountPairs(self._parts, self._symbol_ids, self._first_id, merges), _PAIR_SCHEMA)
            summed = rows.groupBy("pair").agg(F.sum("count").alias("count"))
            table = self._collect(summed.where((F.col("count") >= floor) | (F.col("pair") < 0)))
        pairs, counts = (table[name].to_numpy() for name in ("pair", "count"))
        statistics = {int(pair): int(count) for pair, count in zip(pairs, counts, strict=True) if pair < 0}
        self._size = statistics.get(_WORDS, 0), statistics.get(_SYMBOLS, 0)
        order = np.argsort(pairs)[len(statistics) :]
        return pairs[order], counts[order]

    def cut(self, kept: np.ndarray, limit: int) -> Sequences | None:
        with _Shared(self._spark, self._merges) as merges, _Shared(self._spark, kept) as pairs:
            task = _CutWords(self._parts, self._symbol_ids, self._first_id, merges, pairs)
            rows = self._run(task, _PIECE_SCHEMA)
            summed = rows.groupBy("piece").agg(F.sum("count").alias("count")).persist(StorageLevel.DISK_ONLY)
            try:
                (size,) = collect(self._spark, summed.agg(F.sum(F.octet_length("piece")).alias("bytes")))
                if (size.bytes or 0) > 4 * limit:
                    return None
                table = self._collect(summed)
            finally:
                summed.unpersist()
        pieces = Documents.raw(_one_chunk(table["piece"].cast(pa.large_binary())))
        first, last = pieces.offsets[0], pieces.offsets[-1]
        symbols = np.frombuffer(pieces.data[first:last].tobytes(), "<i4").astype(np.int32)
        return in_order(Sequences(symbols, (pieces.offsets - first) // 4, table["count"].to_numpy()))

    def apply(self, merges: np.ndarray, first_id: int) -> None:
        assert first_id == self._first_id + len(self._merges)
        self._merges = np.concatenate([self._merges, merges])

    def _run(self, task: Callable[[int], Iterator[pa.RecordBatch]], schema: str) -> DataFrame:
        n = len(self._parts)
        return self._spark.range(0, n, 1, max(1, n)).mapInArrow(run_tasks(task), schema)

    def _collect(self, frame: DataFrame) -> pa.Table:
        """All rows as Arrow: as Python objects they take long, and much memory."""
        return collect(self._spark, _AsArrow(frame))


@dataclass(frozen=True)
class _AsArrow:
    """What ``collect`` calls."""

    frame: DataFrame

    def collect(self) -> pa.Table:
        return self.frame.toArrow()


class _Shared:
    """An array on all executors, for as long as the context lasts."""

    def __init__(self, spark: SparkSession, array: np.ndarray):
        self._broadcast = spark.sparkContext.broadcast(array)

    def __enter__(self) -> Broadcast:
        return self._broadcast

    def __exit__(self, *_) -> None:
        self._broadcast.destroy()


@dataclass(frozen=True)
class _Task:
    """Reads one part of the table on an executor."""

    parts: list[tuple[str, int]]
    symbol_ids: np.ndarray
    first_id: int
    merges: Broadcast

    def read(self, index: int) -> Iterator[Sequences]:
        """The words of a part, merged so far."""
        path, rows = self.parts[index]
        table = MergeTable(self.merges.value, self.first_id)
        found = 0
        try:
            fs, inner = storage.filesystem(path)
            with fs.open(inner, "rb") as file:
                for batch in pq.ParquetFile(file).iter_batches(_BATCH_ROWS, columns=["word", "count"]):
                    found += batch.num_rows
                    yield table.apply(self._symbols(batch))
        except (OSError, pa.ArrowException) as error:
            raise FormatError(f"{path}: this part of the word table cannot be read ({error})") from None
        if found != rows:
            raise FormatError(f"{path}: {found} rows, but {words.MANIFEST} says {rows}")

    def _symbols(self, batch: pa.RecordBatch) -> Sequences:
        column = Documents.raw(batch["word"].cast(pa.large_binary()))
        data, starts = np.empty(column.size, np.uint8), np.zeros(batch.num_rows + 1, np.int64)
        counts = np.empty(batch.num_rows, np.int64)
        # A word has a row for each of its groups, one after the other.
        n = content_kernels.add_equal_neighbours(
            column.data, column.offsets, batch["count"].to_numpy(), data, starts, counts
        )
        if n < 0:
            raise FormatError("the rows of the word table are not sorted; count again")
        keep = np.diff(starts[: n + 1]) <= MAX_WORD_SYMBOLS
        if not keep.all():
            lengths = np.diff(starts[: n + 1])
            data = data[: starts[n]][np.repeat(keep, lengths)]
            starts, counts, n = np.concatenate([[0], np.cumsum(lengths[keep])]), counts[:n][keep], int(keep.sum())
        return lay_out(data, starts[: n + 1], counts[:n], self.symbol_ids)


@dataclass(frozen=True)
class _CountPairs(_Task):
    """Adjacent pairs of a part, and its size."""

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        n_ids = self.first_id + len(self.merges.value)
        any_count = np.zeros(n_ids, np.int64)
        table = PairTable()
        n_words = n_symbols = 0
        for batch in self.read(index):
            n_words += len(batch.counts)
            n_symbols += len(batch.symbols)
            table.add(batch, any_count, 0)
            if len(table) > _MOST_PAIRS:
                yield from self._rows(*table.result())
                table = PairTable()
        pairs, counts = table.result()
        yield from self._rows(np.append(pairs, [_WORDS, _SYMBOLS]), np.append(counts, [n_words, n_symbols]))

    @staticmethod
    def _rows(pairs: np.ndarray, counts: np.ndarray) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(pairs), _BATCH_ROWS):
            chosen = slice(first, first + _BATCH_ROWS)
            yield pa.RecordBatch.from_arrays([pa.array(pairs[chosen]), pa.array(counts[chosen])], ["pair", "count"])


@dataclass(frozen=True)
class _CutWords(_Task):
    """The pieces of a part's words; equal ones added up as far as they fit into memory."""

    kept: Broadcast

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        kept = pair_set(self.kept.value)
        table = PieceTable()
        for batch in self.read(index):
            table.add(batch, kept)
            if table.symbols > _MOST_SYMBOLS:
                yield from self._rows(table.pieces())
                table = PieceTable()
        yield from self._rows(table.pieces())

    @staticmethod
    def _rows(pieces: Sequences) -> Iterator[pa.RecordBatch]:
        """Pieces as little-endian bytes of their symbols."""
        for first in range(0, len(pieces.counts), _BATCH_ROWS):
            starts = pieces.starts[first : first + _BATCH_ROWS + 1]
            n = len(starts) - 1
            data = pieces.symbols[starts[0] : starts[-1]].astype("<i4")
            offsets = ((starts - starts[0]) * 4).astype(np.int64)
            piece = pa.Array.from_buffers(pa.large_binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
            counts = pa.array(pieces.counts[first : first + n])
            yield pa.RecordBatch.from_arrays([piece.cast(pa.binary()), counts], names=["piece", "count"])


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
