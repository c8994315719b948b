"""Shards in the making: shuffled and packed, both sides, with tails; whatever the batches and the memory."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from shardpiece.corpus.keys import document_hash
from shardpiece.corpus.order import Validation
from shardpiece.errors import FormatError
from shardpiece.shards import formats
from shardpiece.shards.builder import ShardBuilder, ShardLayout
from shardpiece.shards.formats.base import ShardSpec, TokenBatch, Written
from shardpiece.shards.packing import Packing
from shardpiece.shards.shuffle import sequence_keys
from shardpiece.shards.tails import read_tail, write_tails
from tests.shards.test_packing import rows_of


class Kept:
    """A format that keeps its rows in memory, as lists: by place and shard."""

    name, suffixes, extras = "kept", (), ()

    def __init__(self, carries):
        self.carries = frozenset(carries)
        self.rows = {}

    def dtype(self, vocab_size):
        return np.dtype("<u2")

    def check(self, spec):
        pass

    def open(self, directory, name, spec):
        return _Writer(self.rows.setdefault(f"{directory}/{name}", []))


class _Writer:
    def __init__(self, batches):
        self.write = batches.append

    def close(self):
        return Written([])

    def discard(self):
        pass


@pytest.fixture
def kept(monkeypatch):
    made = Kept(["ids", "metadata", "pieces"])
    monkeypatch.setitem(formats.FORMATS, "kept", made)
    return made


RNG = np.random.default_rng(5)
DOCUMENTS = [(f"d{i}", RNG.integers(0, 60_000, n).tolist()) for i, n in enumerate(RNG.integers(0, 30, 400).tolist())]
SPEC = ShardSpec(60_000)


def build(documents, layout, batch_size, name="shard-00000"):
    """(entry, tails), everything written to the directory "out"."""
    builder = ShardBuilder("out", name, layout)
    for start in range(0, len(documents), batch_size):
        part = documents[start : start + batch_size]
        offsets = np.concatenate([[0], np.cumsum([len(tokens) for _, tokens in part], dtype=np.int64)])
        tokens = np.array([token for _, tokens in part for token in tokens], np.uint16)
        n = pa.array([int(name[1:]) for name, _ in part], pa.int32())
        names = pa.array([name for name, _ in part])
        builder.add(TokenBatch(tokens, offsets, names, pa.RecordBatch.from_arrays([n], names=["n"])))
    return builder.finish(), builder.tails


def rows_as_documents(batches):
    return [
        (name, batch.tokens[a:b].tolist(), n)
        for batch in batches
        for name, a, b, n in zip(
            batch.ids.to_pylist(), batch.offsets[:-1], batch.offsets[1:], batch.metadata["n"].to_pylist(), strict=True
        )
    ]


@pytest.mark.parametrize("memory", [1 << 12, 1 << 24])
def test_documents_are_shuffled_by_their_ids(kept, memory):
    layout = ShardLayout(("kept",), SPEC, seed=3, memory=memory)
    entry, _ = build(DOCUMENTS, layout, 37)
    keys = document_hash(3, pa.array([name for name, _ in DOCUMENTS]), "shuffle").tolist()
    order = sorted(range(len(DOCUMENTS)), key=lambda i: keys[i])
    assert rows_as_documents(kept.rows["out/shard-00000"]) == [(*DOCUMENTS[i], i) for i in order]
    assert entry["documents"] == len(DOCUMENTS)
    assert "rows" not in entry


def test_both_sides_are_shuffled(kept):
    build(DOCUMENTS, ShardLayout(("kept",), SPEC, Validation(0.3), seed=3), 37)
    names = pa.array([name for name, _ in DOCUMENTS])
    keys, chosen = document_hash(3, names, "shuffle").tolist(), Validation(0.3).chosen(names)
    for side, wanted in (("train", False), ("validation", True)):
        order = sorted((i for i in range(len(DOCUMENTS)) if chosen[i] == wanted), key=lambda i: keys[i])
        assert rows_as_documents(kept.rows[f"out/{side}/shard-00000"]) == [(*DOCUMENTS[i], i) for i in order]


@pytest.mark.parametrize("strategy", ["concatenate", "best_fit"])
@pytest.mark.parametrize("seed", [None, 3])
def test_packed_rows_do_not_depend_on_batches_or_memory(kept, strategy, seed):
    layout = ShardLayout(("kept",), SPEC, packing=Packing(strategy, 16, pad_id=0), seed=seed)
    entry, tails = build(DOCUMENTS, layout, 400)
    rows = rows_of(kept.rows.pop("out/shard-00000"))
    assert tails == {}
    for batch_size, memory in ((1, 1 << 24), (37, 1 << 12), (150, 1)):
        assert build(DOCUMENTS, replace(layout, memory=memory), batch_size) == (entry, {})
        assert rows_of(kept.rows.pop("out/shard-00000")) == rows
    assert entry["documents"] == len(DOCUMENTS)
    assert entry["tokens"] == entry["packing"]["packed_tokens"] == sum(len(tokens) for _, tokens in DOCUMENTS)
    assert entry["rows"] == entry["packing"]["sequences"] == len(rows)
    pieces = Counter((name, tuple(piece)) for _, pieces in rows for name, piece in pieces)
    if seed is not None:  # the rows before they were put in order, by concatenating documents in order
        keys = sequence_keys(seed, "shard-00000", 0, len(rows))
        unshuffled = [rows[place] for place in np.argsort(np.argsort(keys))]
        ids = pa.array([name for name, _ in DOCUMENTS])
        order = np.argsort(document_hash(seed, ids, "shuffle"), kind="stable")
        build([DOCUMENTS[i] for i in order], replace(layout, seed=None), 400)
        assert rows_of(kept.rows["out/shard-00000"]) == unshuffled
    assert sum(len(piece) * count for (_, piece), count in pieces.items()) == entry["tokens"]


def test_ids_are_kept_only_where_a_format_has_a_place_for_them(monkeypatch):
    plain = Kept([])
    monkeypatch.setitem(formats.FORMATS, "kept", plain)
    layout = ShardLayout(("kept",), SPEC, packing=Packing("best_fit", 16, pad_id=0), seed=1)
    build(DOCUMENTS, layout, 100)
    assert all(batch.pieces.ids is None for batch in plain.rows["out/shard-00000"])


@pytest.mark.parametrize("strategy", ["concatenate", "best_fit"])
def test_tails_of_both_sides_are_packed_into_the_last_shard(kept, tmp_path, strategy):
    packing = Packing(strategy, 16, "carry", pad_id=0)
    layout = ShardLayout(("kept",), SPEC, Validation(0.2), packing, seed=2)
    entries = []
    for number in range(8):
        entry, tails = build(DOCUMENTS[number * 50 : number * 50 + 50], layout, 20, f"shard-{number:05}")
        assert sum(side["packing"]["pad_tokens"] for side in entry["splits"].values()) == 0 or strategy == "best_fit"
        entries += write_tails(str(tmp_path), f"shard-{number:05}", tails)
    last = ShardBuilder("out", "shard-00008", replace(layout, packing=packing.of_tails()))
    for entry in entries:
        last.add_tail(entry["split"], read_tail(str(tmp_path), entry))
    entry = last.finish()
    assert last.tails == {}
    assert entry["documents"] == entry["tokens"] == 0
    assert entry["splits"]["train"]["packing"]["packed_tokens"] > 0
    chosen = Validation(0.2).chosen(pa.array([name for name, _ in DOCUMENTS]))
    for side, wanted in (("train", False), ("validation", True)):
        found = Counter()
        for place, batches in kept.rows.items():
            if f"/{side}/" in place:
                rows = rows_of(batches)
                assert all(len(tokens) == 16 for tokens, _ in rows)
                found.update((name, token) for _, pieces in rows for name, piece in pieces for token in piece)
        expected = [document for document, is_chosen in zip(DOCUMENTS, chosen, strict=True) if is_chosen == wanted]
        assert found == Counter((name, token) for name, tokens in expected for token in tokens)


def test_a_tail_that_changed_is_refused(tmp_path):
    tail = TokenBatch(np.array([1, 2, 3], np.int32), np.array([0, 1, 3]), pa.array(["a", None]))
    (entry,) = write_tails(str(tmp_path), "shard-00000", {"": tail})
    read = read_tail(str(tmp_path), entry)
    assert (read.tokens.tolist(), read.tokens.dtype, read.offsets.tolist()) == ([1, 2, 3], np.int32, [0, 1, 3])
    assert read.ids.to_pylist() == ["a", None]
    path = tmp_path / entry["name"]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match="changed while the job ran"):
        read_tail(str(tmp_path), entry)
    path.unlink()
    with pytest.raises(FormatError, match="cannot be read"):
        read_tail(str(tmp_path), entry)
