"""The word table as an object and as a directory of Parquet files with a manifest.

On disk: ``part-NNNNN.parquet`` with the columns word (binary, UTF-8 bytes of one pre-token), group (string) and count
(int64), sorted by word and group over all parts in order, and ``words.json``, written last, which lists the parts with
their checksums and records the text engine, the input and what was left out. Readers trust words.json alone.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardpiece import storage
from shardpiece.errors import FormatError
from shardpiece.text.documents import Documents
from shardpiece.text.engine import TextEngine
from shardpiece.text.pretokenizers import PreTokenizer, Setting
from shardpiece.text.special import SpecialTokenCutter
from shardpiece.words import content_kernels as kernels
from shardpiece.words.counter import WordCounter

MANIFEST = "words.json"
PART_NAMES = r"part-\d{5,}\.parquet"
FORMAT = "shardpiece-words"
VERSION = 2
SCHEMA = pa.schema([("word", pa.binary()), ("group", pa.string()), ("count", pa.int64())])


@dataclass(frozen=True)
class WordTable:
    """``table``: columns word (large_binary), group (string), count (int64), positive; ``metadata``: the content of
    words.json (for tables made in memory: the text engine alone)."""

    table: pa.Table
    metadata: dict = field(default_factory=dict)

    def __len__(self) -> int:
        return self.table.num_rows

    def __repr__(self) -> str:
        return f"WordTable({len(self):,} rows, {self.engine!r})"

    @property
    def engine(self) -> TextEngine | None:
        """The text engine the words were counted with; None when the table does not say."""
        spec = self.metadata.get("engine")
        if not spec:
            return None
        engine = TextEngine.from_spec(spec)
        if engine.fingerprint != self.metadata["engine_fingerprint"]:
            raise FormatError("the word table's text engine is not the one that its words were counted with")
        return engine

    @property
    def fingerprint(self) -> str:
        """Hash of the rows and of the text engine, the same for any order and partitioning."""
        return fingerprint(content_sums(self.table), self.metadata.get("engine_fingerprint"))

    @classmethod
    def from_counts(
        cls, counts: Mapping[bytes | str, int], engine: TextEngine | PreTokenizer | Setting | None = None
    ) -> "WordTable":
        """A table from word counts made elsewhere, in the mapping's order. Without ``engine`` the user vouches that
        encoding will split as the counting did."""
        sums: dict[bytes, int] = {}
        for word, count in counts.items():
            key = word.encode() if isinstance(word, str) else bytes(word)
            sums[key] = sums.get(key, 0) + count
        words = list(sums)
        table = pa.table(
            {
                "word": pa.array(words, pa.large_binary()),
                "group": pa.array([""] * len(words), pa.string()),
                "count": pa.array(list(sums.values()), pa.int64()),
            }
        )
        return cls(table, _in_memory(TextEngine.of(engine)) if engine else {})

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        engine: TextEngine | PreTokenizer | Setting,
        special_tokens: Iterable[str] = (),
    ) -> "WordTable":
        """Count the words of texts in this process, without Spark; places that spell one of ``special_tokens`` are
        boundaries and not counted."""
        if isinstance(texts, str | bytes):
            raise TypeError("from_texts takes many texts; put one into a list")
        engine = TextEngine.of(engine)
        cutter = SpecialTokenCutter([*special_tokens])
        counter = WordCounter()
        batches: list[pa.RecordBatch] = []
        chunk: list[str] = []
        size = 0

        def count() -> None:
            cut = cutter.cut(Documents.from_strings(chunk))
            batches.extend(counter.add(engine.split(cut.pieces, cut.at_start)))
            chunk.clear()

        for text in texts:
            chunk.append(text)
            size += len(text)
            if size > 4 << 20:
                count()
                size = 0
        count()
        batches.extend(counter.drain())
        table = pa.Table.from_batches(batches, SCHEMA)
        table = table.group_by(["word", "group"], use_threads=False).aggregate([("count", "sum")])
        table = table.rename_columns(["word", "group", "count"]).sort_by([("word", "ascending")])
        return cls(_large(table), _in_memory(engine))

    @classmethod
    def read(cls, directory: str) -> "WordTable":
        """Read a table that ``shardpiece count`` wrote. Raises FormatError when it is absent, unfinished or changed."""
        metadata = read_manifest(directory)
        parts = [part.table for part in cls.read_parts(directory, metadata)]
        return cls(pa.concat_tables(parts) if parts else _large(SCHEMA.empty_table()), metadata)

    @classmethod
    def read_parts(cls, directory: str, manifest: dict) -> Iterator["WordTable"]:
        """The parts of a table one after the other, for those that are too large to be held. Raises FormatError when one is
        absent or changed."""
        for part in manifest["files"]:
            path = storage.join(directory, part["name"])
            try:
                # Not from a file of Python's: a thread of Arrow's that lets go of it when the interpreter ends aborts it.
                if storage.is_local(path):
                    rows = pq.read_table(storage.filesystem(path)[1], schema=SCHEMA, memory_map=True)
                else:
                    rows = pq.read_table(pa.BufferReader(storage.read_bytes(path)), schema=SCHEMA)
            except (OSError, pa.ArrowException) as error:
                raise FormatError(f"{path}: this part of the word table cannot be read ({error})") from None
            if rows.num_rows != part["rows"]:
                raise FormatError(f"{path}: {rows.num_rows} rows, but {MANIFEST} says {part['rows']}")
            yield cls(_large(rows), manifest)

    def to_counter(self) -> Counter:
        """Word bytes → count over all groups, as a Python object per word: for small tables."""
        counter: Counter = Counter()
        for word, count in zip(self.table["word"].to_pylist(), self.table["count"].to_pylist(), strict=True):
            counter[word] += count
        return counter

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Words summed over groups, in table order of their first row: (data uint8, starts int64 [n + 1],
        counts int64 [n]), all read-only."""
        words = Documents.raw(_one_chunk(self.table["word"]))
        counts = _one_chunk(self.table["count"]).to_numpy(zero_copy_only=False)
        if pc.count_distinct(self.table["group"]).as_py() <= 1:
            return words.data[: words.offsets[-1]], words.offsets, counts
        data = np.empty(words.size, np.uint8)
        starts, sums = np.zeros(len(counts) + 1, np.int64), np.empty(len(counts), np.int64)
        n = kernels.add_equal_neighbours(words.data, words.offsets, counts, data, starts, sums)
        if n >= 0:
            result = data[: starts[n]], starts[: n + 1], sums[:n]
            for array in result:
                array.flags.writeable = False  # kernels are compiled for read-only input
            return result
        # Not sorted: equal words may be anywhere.
        table = self.table.group_by("word", use_threads=False).aggregate([("count", "sum")])
        words = Documents.raw(_one_chunk(table["word"]))
        return words.data, words.offsets, _one_chunk(table["count_sum"]).to_numpy(zero_copy_only=False)

    def grouped_arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]:
        """The rows as they are, a word once for each of its groups: (data uint8, starts int64 [rows + 1], counts int64
        [rows], groups int32 [rows], the names of the groups, sorted)."""
        words = Documents.raw(_one_chunk(self.table["word"]))
        groups = _one_chunk(self.table["group"].fill_null("")).dictionary_encode()
        names = groups.dictionary.to_pylist()
        order = sorted(range(len(names)), key=names.__getitem__)
        place = np.empty(len(names), np.int32)
        place[order] = np.arange(len(names))
        counts = _one_chunk(self.table["count"]).to_numpy(zero_copy_only=False)
        return words.data, words.offsets, counts, place[groups.indices.to_numpy()], tuple(names[i] for i in order)


def read_manifest(directory: str) -> dict:
    """The content of words.json. Raises FormatError when it is not a finished word table of a known version."""
    path = storage.join(directory, MANIFEST)
    if not storage.exists(path):
        raise FormatError(f"{directory}: no word table here ({MANIFEST} is missing). Make one with: shardpiece count")
    keys = {"key": str, "fingerprint": str, "engine": dict, "engine_fingerprint": str, "files": list,
            "statistics": dict, "distinct_words": int, "special_tokens": list}  # fmt: skip
    manifest = storage.read_manifest(path, FORMAT, VERSION, keys)
    for file in manifest["files"]:
        if not isinstance(file.get("rows"), int) or not re.fullmatch(PART_NAMES, file["name"]):
            raise FormatError(f"{path}: damaged ({file['name']!r} is no part of a word table, or has no rows)")
    if not all(isinstance(token, str) for token in manifest["special_tokens"]):
        raise FormatError(f"{path}: damaged (special_tokens holds what is no text)")
    return manifest


def _in_memory(engine: TextEngine) -> dict:
    return {"engine": engine.spec, "engine_fingerprint": engine.fingerprint}


def content_sums(table: pa.Table | pa.RecordBatch) -> np.ndarray:
    """Two 64-bit sums of row hashes (uint64 [2]); sums of parts add up, wrapping, to the sums of the whole."""
    sums = np.zeros(2, np.uint64)
    batches = table.to_batches() if isinstance(table, pa.Table) else [table]
    for batch in batches:
        word = Documents.raw(batch["word"].cast(pa.large_binary()))
        group = Documents.raw(batch["group"].cast(pa.large_binary()))
        counts = batch["count"].to_numpy(zero_copy_only=False)
        kernels.content_sums(word.data, word.offsets, group.data, group.offsets, counts, sums)
    return sums


def fingerprint(sums: np.ndarray, engine_fingerprint: str | None) -> str:
    """What identifies a table: 128 bits of its rows and the text engine they were counted with."""
    rows = "".join(f"{int(value):016x}" for value in sums)
    return f"{rows}:{(engine_fingerprint or 'none')[:32]}"


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _large(table: pa.Table) -> pa.Table:
    """Words as large_binary: all of them together may pass 2 GiB."""
    return table.set_column(0, "word", table["word"].cast(pa.large_binary()))
