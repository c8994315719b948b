"""Shards against the input they were made of: every document encoded again, none lost, none doubled.

Where the shards keep the input's order, a shard is compared row by row with its splits. Where documents were shuffled or
set apart, all documents of the input and of the shards are compared as multisets, by sums of their hashes in buckets: memory
does not grow with the corpus, and only buckets that differ are looked at again, for names.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import xxhash

from shardpiece.corpus.base import AnySplit, Batch, BatchRange, ByteRange, Selection, Split
from shardpiece.corpus.order import Placement
from shardpiece.corpus.splits import read_batches
from shardpiece.pipeline.encode.documents import LEFT_OUT, DocumentEncoder, Encoded, Encoding
from shardpiece.pipeline.tasks import Counters
from shardpiece.shards.builder import ShardLayout
from shardpiece.shards.formats.base import Row, TokenBatch
from shardpiece.shards.manifest import spec_of
from shardpiece.shards.readers import shard_rows
from shardpiece.text.documents import Documents
from shardpiece.tokenizer.sampling import Sampling
from shardpiece.tokenizer.tokenizer import Tokenizer

BUCKETS = 4096
_SHOWN = 5
_SPLITS = (Split, BatchRange, ByteRange)


@dataclass
class Compared:
    """``documents``: how many of the input were compared; ``exact``: how many of them decode to their text."""

    problems: list[str] = field(default_factory=list)
    documents: int = 0
    exact: int = 0


@dataclass
class Digest:
    """A multiset of documents. Per bucket of hashes: how many, and their sum modulo 2^64."""

    counts: np.ndarray = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))
    sums: np.ndarray = field(default_factory=lambda: np.zeros(BUCKETS, np.uint64))

    def add(self, hashes: np.ndarray) -> None:
        bucket = (hashes >> np.uint64(52)).astype(np.int64)
        self.counts += np.bincount(bucket, minlength=BUCKETS)
        np.add.at(self.sums, bucket, hashes)

    def merge(self, other: "Digest") -> None:
        self.counts += other.counts
        self.sums += other.sums

    def differing(self, other: "Digest") -> np.ndarray:
        return np.flatnonzero((self.counts != other.counts) | (self.sums != other.sums))


class _Here:
    """What a task gets by broadcast, or counts for a progress bar with, in a process without Spark."""

    def __init__(self, value: object = None):
        self.value = value

    def build(self) -> object:
        return self.value

    def add(self, _) -> None:
        pass


def split_of(source: dict) -> AnySplit:
    """A split as a manifest lists it. Raises LookupError for what is none."""
    return next(kind for kind in _SPLITS if kind.__dataclass_fields__.keys() == source.keys())(**source)


class Source:
    """The input as these shards were made of it: encoded again with the settings of the manifest. ``exact``: how many
    documents decoded to their text so far."""

    def __init__(self, manifest: dict, selection: Selection, tokenizer: Tokenizer):
        made_with = manifest["settings"]
        before, after = (tuple(made_with["around"][side]) for side in ("before", "after"))
        sampling = None if made_with["sampling"] is None else Sampling(**made_with["sampling"])
        keep_empty = made_with["empty_documents"] == "keep"
        layout = ShardLayout(tuple(manifest["formats"]), spec_of(manifest))
        self.with_ids = layout.carries("ids")
        self.exact = 0
        self._tokenizer, self._around = tokenizer, (len(before), len(after))
        self._documents = DocumentEncoder(
            selection, made_with["invalid_utf8"], layout.dtype(),
            self.with_ids or layout.carries("pieces"),
            Encoding(made_with["special_tokens_in_text"], before, after, keep_empty, sampling), Placement(),
            _Here(_Here(tokenizer)), f"here {id(self)}", Counters(*[_Here()] * 4),
        )  # fmt: skip

    def encode(self, split: AnySplit) -> Iterator[Encoded]:
        return self._documents.encode(read_batches([split], self._documents.selection))

    def batches(self, sources: Iterable[dict]) -> Iterator[TokenBatch]:
        """The documents of some splits that go into shards, each once."""
        splits, selection = [split_of(source) for source in sources], self._documents.selection
        read = (batch for batch in read_batches(splits, selection) if len(batch))
        for encoded, batch in zip(self._documents.encode(read_batches(splits, selection)), read, strict=True):
            self.exact += self._decoding_to(encoded, batch)
            yield encoded.written()

    def _decoding_to(self, encoded: Encoded, batch: Batch) -> int:
        """How many of the documents that go into shards decode to their text."""
        documents = Documents.from_arrow(batch[batch.text_column], self._documents.invalid_utf8)
        kept = encoded.flags & LEFT_OUT == 0
        ends = np.append(documents.offsets[:1], documents.offsets[1:][kept])  # what is left out has no text
        rows = encoded.written()
        before, after = self._around
        starts, stops = rows.offsets[:-1] + before, rows.offsets[1:] - after
        decode = self._tokenizer.decode_bytes
        if self._tokenizer.decodes_by_pieces:
            text = np.zeros(len(rows.tokens) + 1, np.int8)
            np.add.at(text, starts, 1)
            np.add.at(text, stops, -1)
            inside = np.cumsum(text[:-1]) > 0
            if decode(rows.tokens[inside]) == documents.data[ends[0] : ends[-1]].tobytes():
                return len(rows)
        return sum(
            decode(rows.tokens[starts[d] : stops[d]]) == documents.data[ends[d] : ends[d + 1]].tobytes()
            for d in range(len(rows))
        )


def compare_in_order(directory: str, manifest: dict, shard: dict, format: str, source: Source) -> Compared:
    """A shard with its splits, row by row. Raises as reading either does."""
    found = Compared()
    rows = shard_rows(directory, manifest, shard, format)
    at = 0
    exact = source.exact
    for batch in source.batches(shard["sources"]):
        taken = list(islice(rows, len(batch)))
        found.documents += len(batch)
        problem = _difference(batch, taken, source.with_ids)
        if problem is not None:
            d, what = problem
            name = f" ({batch.ids[d]})" if batch.ids is not None else ""
            found.problems.append(f"{shard['name']}, document {at + d}{name}: {what}")
            return found
        at += len(batch)
        found.exact = source.exact - exact
    more = sum(1 for _ in rows)
    if more:
        found.problems.append(f"{shard['name']}: {more:,} documents more than its part of the input has")
    return found


def _difference(batch: TokenBatch, rows: list[Row], with_ids: bool) -> tuple[int, str] | None:
    """The first document that is not its row, and how."""
    lengths = np.diff(batch.offsets)
    tokens = np.concatenate([row.tokens for row in rows]) if rows else np.empty(0, np.int32)
    names = batch.ids.to_pylist() if with_ids else None
    if (
        len(rows) == len(batch)
        and np.array_equal(lengths, [len(row.tokens) for row in rows])
        and np.array_equal(tokens, batch.tokens)
        and (names is None or names == [row.id for row in rows])
    ):
        return None
    for d, row in enumerate(rows):
        expected = batch.tokens[batch.offsets[d] : batch.offsets[d + 1]]
        if names is not None and names[d] != row.id:
            return d, f"the shard has the document {row.id!r} here"
        if not np.array_equal(expected, row.tokens):
            return d, f"its {len(row.tokens):,} tokens are not the {len(expected):,} that its text is encoded to"
    return len(rows), "missing, with all that follow it"


def hashes_of_batches(batches: Iterable[TokenBatch], with_ids: bool) -> Iterator[tuple[np.ndarray, list[str | None]]]:
    """(uint64 per document, their ids) of each batch: the hash of id, where the shards have ids, and tokens."""
    for batch in batches:
        names = [None] * len(batch) if batch.ids is None else batch.ids.to_pylist()
        tokens, ends = batch.tokens.astype(np.uint32), batch.offsets.tolist()
        found = [_hash(names[d] if with_ids else None, tokens[ends[d] : ends[d + 1]]) for d in range(len(batch))]
        yield np.array(found, np.uint64), names


def hashes_of_rows(rows: Iterable[Row], with_ids: bool) -> Iterator[tuple[np.ndarray, list[str | None]]]:
    """As ``hashes_of_batches``, of rows of a shard."""
    names: list[str | None] = []
    found: list[int] = []
    for row in rows:
        names.append(row.id)
        found.append(_hash(row.id if with_ids else None, row.tokens.astype(np.uint32)))
        if len(found) == 4096:
            yield np.array(found, np.uint64), names
            names, found = [], []
    yield np.array(found, np.uint64), names


def _hash(name: str | None, tokens: np.ndarray) -> int:
    state = xxhash.xxh3_64(tokens.tobytes())
    state.update(b"" if name is None else b"\x01" + name.encode())
    return state.intdigest()


def digest(hashes: Iterable[tuple[np.ndarray, list[str | None]]]) -> Digest:
    found = Digest()
    for values, _ in hashes:
        found.add(values)
    return found


def members(hashes: Iterable[tuple[np.ndarray, list[str | None]]], buckets: np.ndarray) -> Counter:
    """(hash, id) of every document in some buckets, counted."""
    found: Counter = Counter()
    for values, names in hashes:
        for i in np.flatnonzero(np.isin((values >> np.uint64(52)).astype(np.int64), buckets)).tolist():
            found[int(values[i]), names[i]] += 1
    return found


def named_differences(source: Counter, shards: Counter) -> list[str]:
    """What the shards lack and what they have too often. Formats without ids cannot name the latter."""
    names = dict([*shards, *source])
    want, have = Counter(), Counter()
    for counted, of in ((want, source), (have, shards)):
        for (value, _), n in of.items():
            counted[value] += n
    problems = []
    for what, missing in (("lost", want - have), ("doubled, or not from this input", have - want)):
        if missing:
            shown = ", ".join(sorted(str(names[value]) for value in missing)[:_SHOWN])
            problems.append(f"{sum(missing.values()):,} documents are {what}: {shown}")
    return problems
