"""Packing against plain lists: every token once, no row over the length, as few rows as best-fit-decreasing needs."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import ConfigError
from shardpiece.shards.best_fit import best_fit_decreasing
from shardpiece.shards.formats.base import TokenBatch
from shardpiece.shards.packing import STATISTICS, Packer, Packing

PAD = 9


def documents_of(lengths):
    """Document d is (name, tokens); a token says where it is from: number * 1000 + position."""
    return [(f"d{d}", [1000 * (d + 1) + i for i in range(n)]) for d, n in enumerate(lengths)]


def batch_of(documents, dtype=np.int32, ids=True):
    tokens = np.array([token for _, document in documents for token in document], dtype)
    offsets = np.concatenate([[0], np.cumsum([len(document) for _, document in documents], dtype=np.int64)])
    return TokenBatch(tokens, offsets, pa.array([name for name, _ in documents], pa.string()) if ids else None)


def rows_of(batches):
    """[(tokens, [(document id, tokens of the piece)])] of packed rows."""
    rows = []
    for batch in batches:
        ids = batch.pieces.ids.to_pylist() if batch.pieces.ids is not None else [None] * len(batch.pieces.ends)
        for r, (start, end) in enumerate(zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True)):
            tokens, pieces, begin = batch.tokens[start:end].tolist(), [], 0
            for p in range(batch.pieces.offsets[r], batch.pieces.offsets[r + 1]):
                pieces.append((ids[p], tokens[begin : batch.pieces.ends[p]]))
                begin = batch.pieces.ends[p]
            rows.append((tokens, pieces))
    return rows


def tail_of(batch):
    if batch is None:
        return []
    bounds = zip(batch.offsets[:-1], batch.offsets[1:], strict=True)
    return [(name, batch.tokens[a:b].tolist()) for name, (a, b) in zip(batch.ids.to_pylist(), bounds, strict=True)]


def pack(documents, packing, cuts=(), memory=1 << 20):
    """(rows, tail, statistics), the documents given in batches that end at ``cuts``."""
    packer = Packer(packing, memory)
    bounds = [0, *sorted(cuts), len(documents)]
    batches = []
    for a, b in pairwise(bounds):
        batches += packer.add(batch_of(documents[a:b]))
    rest, tail, statistics = packer.finish()
    return rows_of([*batches, *rest]), tail_of(tail), statistics


def concatenated(documents, length, remainder, keep):
    """The reference: (rows as lists of pieces, tail)."""
    rows, row = [], []
    for name, tokens in documents:
        if keep and len(tokens) > length:
            rows.append([(name, tokens)])
            continue
        for token in tokens:
            if row and row[-1][0] == name:
                row[-1][1].append(token)
            else:
                row.append((name, [token]))
            if sum(len(piece) for _, piece in row) == length:
                rows.append(row)
                row = []
    if row and remainder == "pad":
        rows.append(row)
    return rows, row if remainder == "carry" else []


def best_fit_rows(lengths, capacity):
    """The reference: how many rows best-fit-decreasing needs, and their fill."""
    spaces = []
    for length in sorted(lengths, reverse=True):
        fitting = [i for i, space in enumerate(spaces) if space >= length]
        if fitting:
            spaces[min(fitting, key=lambda i: spaces[i])] -= length
        else:
            spaces.append(capacity - length)
    return sorted(capacity - space for space in spaces)


def statistics_of(documents, rows, tail, packing):
    """The reference: what the rows and the tail say about the statistics."""
    left = Counter(token for _, pieces in rows for _, piece in pieces for token in piece)
    carried = [token for _, piece in tail for token in piece]
    where = Counter()
    for place in [pieces for _, pieces in rows] + ([tail] if tail else []):
        where.update({name for name, _ in place})
    dropped = [t for _, tokens in documents for t in tokens if t not in left and t not in carried]
    statistics = {
        "sequences": len(rows), "packed_tokens": sum(left.values()),
        "pad_tokens": sum(len(tokens) for tokens, _ in rows) - sum(left.values()), "dropped_tokens": len(dropped),
        "dropped_documents": sum(bool(tokens) and not where[name] for name, tokens in documents),
        "carried_tokens": len(carried), "cut_documents": sum(count > 1 for count in where.values()),
        "documents_without_tokens": sum(not tokens for _, tokens in documents),
    }  # fmt: skip
    if packing.remainder == "drop":  # what is left of a document is in one row, the rest is dropped: cut too
        names = {name for name, tokens in documents if where[name] == 1 and set(tokens) & set(dropped)}
        statistics["cut_documents"] += len(names)
    return statistics


lengths = st.lists(st.one_of(st.integers(0, 9), st.integers(0, 40)), max_size=30)
packings = st.builds(
    Packing,
    strategy=st.sampled_from(["concatenate", "best_fit"]),
    sequence_length=st.integers(1, 12),
    remainder=st.sampled_from(["pad", "drop", "carry"]),
    long_documents=st.sampled_from(["split", "keep"]),
    pad_id=st.just(PAD),
)


@settings(max_examples=300, deadline=None)
@given(lengths, packings, st.data())
def test_every_token_is_somewhere_once(lengths, packing, data):
    documents = documents_of(lengths)
    cuts = data.draw(st.lists(st.integers(0, len(documents)), max_size=5))
    memory = data.draw(st.sampled_from([1, 600, 1 << 20]))
    rows, tail, statistics = pack(documents, packing, cuts, memory)
    assert (rows, tail, statistics) == pack(documents, packing)
    assert statistics == statistics_of(documents, rows, tail, packing)
    assert set(statistics) == set(STATISTICS)
    given_tokens = sum(lengths)
    parts = ("packed_tokens", "dropped_tokens", "carried_tokens")
    assert sum(statistics[part] for part in parts) == given_tokens
    whole = dict(documents)
    length = packing.sequence_length
    everything = Counter()
    for tokens, pieces in rows:
        filled = sum(len(piece) for _, piece in pieces)
        assert tokens[filled:] == [PAD] * (length - filled)
        assert len(tokens) == length or (packing.long_documents == "keep" and len(pieces) == 1 and filled > length)
        for name, piece in pieces:
            assert piece
            assert set(piece) <= set(whole[name])
            everything.update(piece)
    everything.update(token for _, piece in tail for token in piece)
    assert all(count == 1 for count in everything.values())
    if packing.strategy == "best_fit":
        # Only documents that are too long are cut, into full pieces and a rest.
        for _, pieces in [*rows, (None, tail)]:
            for name, piece in pieces:
                start = whole[name].index(piece[0])
                if packing.long_documents == "keep":
                    assert piece == whole[name]
                else:
                    assert start % length == 0
                    assert piece == whole[name][start : start + length]


@settings(max_examples=150, deadline=None)
@given(lengths, st.integers(1, 12), st.sampled_from(["pad", "drop", "carry"]), st.booleans())
def test_concatenate_is_what_lists_say(lengths, length, remainder, keep):
    documents = documents_of(lengths)
    packing = Packing("concatenate", length, remainder, "keep" if keep else "split", PAD)
    rows, tail, _ = pack(documents, packing, cuts=[len(documents) // 3, len(documents) // 2])
    assert ([pieces for _, pieces in rows], tail) == concatenated(documents, length, remainder, keep)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 60).flatmap(lambda c: st.tuples(st.just(c), st.lists(st.integers(1, c), max_size=60))))
def test_best_fit_decreasing_is_the_textbook_one(case):
    capacity, lengths = case
    rows = best_fit_decreasing(np.array(lengths, np.int64), capacity)
    filled = np.bincount(rows, weights=lengths).astype(int).tolist() if lengths else []
    assert sorted(filled) == best_fit_rows(lengths, capacity)


def test_equal_pieces_fill_rows_in_their_order():
    lengths = np.random.default_rng(0).integers(7, 9, 5000)
    rows = best_fit_decreasing(lengths, 8)
    assert rows[lengths == 8].tolist() == list(range(sum(lengths == 8)))
    assert rows[lengths == 7].tolist() == list(range(sum(lengths == 8), 5000))


@settings(max_examples=100, deadline=None)
@given(lengths, st.integers(1, 12), st.sampled_from(["pad", "drop", "carry"]))
def test_best_fit_needs_as_many_rows_and_sets_the_half_empty_one_apart(lengths, length, remainder):
    documents = documents_of(lengths)
    rows, tail, _ = pack(documents, Packing("best_fit", length, remainder, pad_id=PAD))
    pieces = [min(length, n - start) for n in lengths for start in range(0, n, length)]
    expected = best_fit_rows(pieces, length)
    filled = sorted(sum(len(piece) for _, piece in pieces) for _, pieces in rows)
    if remainder == "pad":
        assert filled == expected
    else:
        apart = [fill for fill in expected if 2 * fill <= length]
        assert len(apart) <= 1
        assert filled == [fill for fill in expected if 2 * fill > length]
        assert sum(len(piece) for _, piece in tail) == (sum(apart) if remainder == "carry" else 0)
    firsts = [min(whole for _, piece in pieces for whole in piece) for _, pieces in rows]
    assert firsts == sorted(firsts)


@pytest.mark.parametrize("strategy", ["concatenate", "best_fit"])
def test_tails_of_all_shards_make_the_last_one(strategy):
    packing = Packing(strategy, 10, "carry", pad_id=PAD)
    shards = [documents_of([3, 25]), documents_of([4]), documents_of([10]), documents_of([1, 2, 1])]
    last = Packer(packing.of_tails())
    tokens, tails = Counter(), []
    for documents in shards:
        packer = Packer(packing)
        batches = packer.add(batch_of(documents))
        rest, tail, _ = packer.finish()
        for _, pieces in rows_of([*batches, *rest]):
            tokens.update(token for _, piece in pieces for token in piece)
        if tail is not None:
            assert tail.offsets[-1] < 10
            tails += last.add(tail)
    rest, tail, statistics = last.finish()
    rows = rows_of([*tails, *rest])
    assert tail is None
    assert statistics["carried_tokens"] == statistics["dropped_tokens"] == 0
    tokens.update(token for _, pieces in rows for _, piece in pieces for token in piece)
    assert tokens == Counter(token for documents in shards for _, document in documents for token in document)
    assert all(len(row) == 10 for row, _ in rows)


def test_the_edges():
    for strategy in ("concatenate", "best_fit"):
        for documents in ([], documents_of([0, 0])):
            rows, tail, statistics = pack(documents, Packing(strategy, 4, pad_id=PAD))
            assert rows == tail == []
            assert statistics == dict.fromkeys(STATISTICS, 0) | {"documents_without_tokens": len(documents)}
        batches, tail, _ = Packer(Packing(strategy, 4, pad_id=PAD)).finish()
        assert (list(batches), tail) == ([], None)
        # Exactly the length: rows of their own without padding; length 1: as many rows as tokens.
        rows, _, statistics = pack(documents_of([4, 4]), Packing(strategy, 4, pad_id=PAD))
        assert [pieces for _, pieces in rows] == [[document] for document in documents_of([4, 4])]
        assert statistics["pad_tokens"] == statistics["cut_documents"] == 0
        rows, _, statistics = pack(documents_of([3, 1]), Packing(strategy, 1, pad_id=PAD))
        assert [tokens for tokens, _ in rows] == [[1000], [1001], [1002], [2000]]
        assert (statistics["cut_documents"], statistics["pad_tokens"]) == (1, 0)
        # Everything dropped.
        rows, tail, statistics = pack(documents_of([2, 1]), Packing(strategy, 8, "drop", pad_id=PAD))
        assert rows == tail == []
        assert (statistics["dropped_tokens"], statistics["dropped_documents"]) == (3, 2)
        # Nothing but a long document, kept.
        rows, _, _ = pack(documents_of([9]), Packing(strategy, 4, "pad", "keep", PAD))
        assert rows == [(documents_of([9])[0][1], documents_of([9]))]


def test_a_document_of_which_something_is_left_is_not_dropped():
    for strategy in ("concatenate", "best_fit"):
        packing = Packing(strategy, 10, "drop", pad_id=PAD)
        for cuts in ([], [1], [1, 2]):  # the end of the first document waits for the batches after it
            _, _, statistics = pack(documents_of([13, 1, 1]), packing, cuts)
            assert (statistics["dropped_tokens"], statistics["dropped_documents"]) == (5, 2)
            assert statistics["cut_documents"] == 1


def test_ids_may_be_missing_and_tokens_keep_their_type():
    for strategy in ("concatenate", "best_fit"):
        packer = Packer(Packing(strategy, 4, pad_id=65535))
        batches = packer.add(batch_of(documents_of([3, 2, 6]), np.uint16, ids=False))
        batches += packer.finish().batches
        assert all(batch.pieces.ids is None and batch.tokens.dtype == np.uint16 for batch in batches)
        assert sum(batch.tokens.tolist().count(65535) for batch in batches) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "first_fit"}, "strategy is 'first_fit'; it can be concatenate, best_fit"),
        ({"remainder": "keep"}, "remainder is 'keep'"),
        ({"long_documents": "drop"}, "long_documents is 'drop'"),
        ({"sequence_length": 0}, "sequence_length is 0"),
        ({"pad_id": None}, "pad_token"),
        ({"pad_id": None, "remainder": "carry"}, "pad_token"),
        ({"pad_id": None, "remainder": "drop", "strategy": "best_fit"}, "pad_token"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ConfigError, match=message):
        Packing(**{"strategy": "concatenate", "sequence_length": 8, "pad_id": 0} | settings)
    Packing("concatenate", 8, "drop")


def test_statistics_are_plain_numbers_for_the_journal():
    packer = Packer(Packing("concatenate", 2, "drop"))
    packer.add(TokenBatch(np.array([1, 2, 3], np.int32), np.array([0, 3])))
    assert {type(n) for n in packer.finish().statistics.values()} == {int}
