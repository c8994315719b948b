"""Packed words: what is packed comes back, merged and added up as a Counter does it; partitions cut where the borders say."""

from bisect import bisect_right
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.corpus.base import Columns
from shardpiece.corpus.sources import list_files
from shardpiece.corpus.splits import plan_input
from shardpiece.pipeline import partitions
from shardpiece.pipeline.count import count
from shardpiece.text.engine import TextEngine
from shardpiece.words import packed
from shardpiece.words.counter import WordCounter
from shardpiece.words.table import WordTable
from tests.conftest import write_corpus
from tests.pipeline.test_stages import config_for
from tests.words.test_counter import as_words, collect

# Runs of few letters, so that many words begin alike; zeros, which pad what is shorter; lengths on both sides of blocks.
letters = st.sampled_from([b"a", b"b", b"\0", b"\xff"])
word = st.one_of(
    st.lists(letters, min_size=1, max_size=20).map(b"".join),
    st.builds(
        lambda letter, n, end: letter * n + end, letters, st.sampled_from([1, 7, 8, 9, 15, 16, 17, 31, 150]), letters
    ),
    st.binary(min_size=1, max_size=12),
)
counts = st.one_of(st.integers(1, 300), st.integers(2**31 - 2, 2**33), st.just(2**62))


def as_rows(table: dict[tuple[bytes, str], int]) -> tuple[packed.Rows, list[str]]:
    names = sorted({group for _, group in table}, reverse=True)
    keys = sorted(table)
    offsets = np.cumsum([0, *(len(word) for word, _ in keys)], dtype=np.int32)
    groups = np.array([names.index(group) for _, group in keys], np.int32)
    counts = np.array([table[key] for key in keys], np.int64)
    return packed.Rows(np.frombuffer(b"".join(word for word, _ in keys), np.uint8), offsets, groups, counts), names


def as_list(batches) -> list[tuple[bytes, str, int]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def summed(tables) -> list[tuple[bytes, str, int]]:
    total = Counter()
    for table in tables:
        total.update(table)
    return [(*key, total[key]) for key in sorted(total)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.tuples(word, st.sampled_from(["", "de", "en", "日本語", "\0"])), counts, min_size=1, max_size=60)
)
def test_a_piece_holds_its_rows(table):
    assert as_list(packed.merge([packed.pack(*as_rows(table))])) == summed([table])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(
        st.dictionaries(
            st.tuples(word, st.sampled_from(["", "de", "en"])), st.integers(1, 2**40), min_size=1, max_size=30
        ),
        max_size=9,
    ),
    st.sampled_from([0, 200, 1 << 20]),
)
def test_pieces_are_merged_and_equal_rows_added_up(tables, memory):
    merger = packed.Merger(memory)
    for table in tables:
        merger.add(packed.pack(*as_rows(table)))
    assert as_list(merger.batches()) == summed(tables)
    assert list(merger.batches()) == []


def test_long_words_many_groups_and_large_counts(monkeypatch):
    monkeypatch.setattr(packed, "_OUT_BYTES", 1000)
    monkeypatch.setattr(packed, "_OUT_ROWS", 70)
    groups = [f"group {i}" for i in range(500)]
    tables = [
        {(b"x" * 65_535, "a"): 2**33, (b"x" * 65_534 + b"y", "a"): 1, (b"x" * 65_534, "a"): 1},
        {(b"the", group): i + 1 for i, group in enumerate(groups)},
        {(b"the", group): 2**40 for group in groups[::3]} | {(b"x" * 65_535, "a"): 2**33},
    ]
    for memory in (0, 1 << 20):
        merger = packed.Merger(memory)
        for table in tables:
            merger.add(packed.pack(*as_rows(table)))
        batches = list(merger.batches())
        assert as_list(batches) == summed(tables)
        assert max(batch.num_rows for batch in batches) <= 70


def test_a_merger_holds_what_its_rows_come_to_not_what_it_was_given():
    table = {(f"{i * 7919:x}".encode(), "en"): i + 1 for i in range(5000)}
    piece = packed.pack(*as_rows(table))
    merger = packed.Merger(memory=2 * len(piece))
    for _ in range(200):
        merger.add(piece)
        assert merger._held < 5 * len(piece)
    assert as_list(merger.batches()) == [(*key, 200 * table[key]) for key in sorted(table)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(["en", "de", ""]), st.lists(word, max_size=60)), max_size=8),
    st.lists(word, max_size=4, unique=True).map(sorted),
    st.sampled_from([1, 1 << 20]),
)
def test_partitions_are_sorted_and_cut_at_the_borders(documents, borders, memory):
    counter = WordCounter(memory, max_word_bytes=200)

    def drain():
        return counter.drain_packed(borders)

    pieces = list(counter.add(as_words([words for _, words in documents]), [group for group, _ in documents], drain))
    pieces += drain()
    found = []
    for partition in range(len(borders) + 1):
        rows = as_list(packed.merge([piece for p, piece in pieces if p == partition]))
        assert all(bisect_right(borders, word) == partition for word, _, _ in rows)
        found += rows
    assert found == summed([{(word, group): 1} for group, words in documents for word in words])
    assert list(counter.drain_packed(borders)) == []


@pytest.mark.parametrize("n", [1, 24, 25, 3000, 40_000])
def test_batches_come_out_sorted(n):
    """Many words with long common beginnings, many groups of one word, and blocks of zeros."""
    random = np.random.default_rng(n)
    beginnings = [b"", b"\0" * 8, b"a" * 8, b"common beginning ", b"x" * 100, b"\xff" * 16]
    words = [
        beginnings[a] + bytes([65 + x for x in tail[:size]])
        for a, size, tail in zip(
            random.integers(0, 6, n), random.integers(1, 12, n), random.integers(0, 3, (n, 12)).tolist(), strict=True
        )
    ]
    documents = [[*words[i::40], b"the", b"\0", b"\0\0"] for i in range(40)]
    names = [f"g{i * 7 % 40:02}" for i in range(40)]
    counter = WordCounter()
    assert list(counter.add(as_words(documents), names)) == []
    batches = list(counter.drain())
    rows = as_list(batches)
    assert [row[:2] for row in rows] == sorted(row[:2] for row in rows)
    assert collect(batches) == Counter((g, word) for g, words in zip(names, documents, strict=True) for word in words)


@pytest.mark.parametrize("borders", [None, [b"\0", b"t", b"t\0", b"\xff\xff"]])
def test_any_partitions_make_the_same_table(session, corpus, tmp_path, monkeypatch, borders):
    """With tasks that spill, borders from a sample and bad ones, which leave partitions empty."""
    one = config_for(corpus, tmp_path / "one")
    count(session, one)
    monkeypatch.setattr(partitions, "_LEAST_TEXT", 1000)
    monkeypatch.setattr(partitions, "_SAMPLE_OF_TEXT", 1)
    if borders:
        monkeypatch.setattr("shardpiece.pipeline.count.choose_borders", lambda *_: borders)
    several = config_for(corpus, tmp_path / "several", count__memory_per_task="1MiB", count__task_size="1MiB")
    count(session, several)
    a, b = WordTable.read(one.words_path), WordTable.read(several.words_path)
    assert a.fingerprint == b.fingerprint
    assert a.table.combine_chunks() == b.table.combine_chunks()
    assert {**a.metadata, "files": 0} == {**b.metadata, "files": 0}
    names = [file["name"] for file in b.metadata["files"]]
    # Of the bad ones, nothing is below the first, above the last, or "t".
    assert names == [f"part-0000{i}.parquet" for i in ((1, 3) if borders else range(3))]
    assert all(file["rows"] for file in b.metadata["files"])


def test_partitions_follow_the_text_and_the_cores():
    mb = 1 << 20
    assert [partitions.choose_partitions(n * mb, 2, 16) for n in (0, 15, 31, 32, 64, 200, 10_000)] == [
        1,
        1,
        1,
        2,
        4,
        4,
        16,
    ]
    assert partitions.choose_partitions(64 * mb, 100, 200) == 4
    assert partitions.choose_partitions(64 * mb, 100, 3) == 3


def test_what_a_sample_cannot_read_costs_balance_only(tmp_path, monkeypatch):
    monkeypatch.setattr(partitions, "_SAMPLE_OF_TEXT", 1)
    rows = [{"id": str(i), "text": f"w{i:04} ", "lang": "en"} for i in range(400)]
    path = write_corpus(tmp_path, rows, files=2) / "part-00000.parquet"
    plan = plan_input(list_files([str(tmp_path)]), Columns("text", group="lang"))
    engine = TextEngine("whitespace_split")
    whole = partitions.choose_borders(partitions.beginnings(plan), engine, 4)
    assert len(whole) == 3
    assert whole == sorted(whole)
    assert all(b"w0070" < border < b"w0330" for border in whole)
    assert whole == partitions.choose_borders(partitions.beginnings(plan), engine, 4)
    path.write_bytes(b"no Parquet")
    assert len(partitions.choose_borders(partitions.beginnings(plan), engine, 4)) == 3
    path.with_name("part-00001.parquet").unlink()
    assert partitions.choose_borders(partitions.beginnings(plan), engine, 4) == []
