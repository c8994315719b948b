"""Cut and deduplicate: the reduction against plain Python, and training on reductions against training on the whole."""

import itertools
import random
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardpiece
from shardpiece.errors import ConfigError, TrainingError
from shardpiece.training import cut
from shardpiece.training.cut import cut_and_deduplicate, learn_merges_cut
from shardpiece.training.cut_tables import Sequences
from shardpiece.training.merge_loop import TIE_BREAKS, learn_merges

BYTES = [bytes([b]) for b in range(256)]
TIES = sorted(set(TIE_BREAKS) - {"first_seen"})


def arrays(words, dtype=np.int32):
    """Words, as (symbols, count), as the arrays of all of them."""
    symbols = np.array(list(itertools.chain.from_iterable(word for word, _ in words)), dtype)
    starts = np.cumsum([0, *(len(word) for word, _ in words)]).astype(np.int64)
    return symbols, starts, np.array([count for _, count in words], np.int64)


def plain_cut(words, floor):
    pairs = Counter()
    for word, count in words:
        for pair in itertools.pairwise(word):
            pairs[pair] += count
    pieces = Counter()
    for word, count in words:
        piece = []
        for symbol in word:
            if piece and (symbol < 0 or pairs[piece[-1], symbol] < floor):
                pieces[tuple(piece)] += count
                piece = []
            if symbol >= 0:
                piece.append(symbol)
        pieces[tuple(piece)] += count
    return sorted((piece, count) for piece, count in pieces.items() if len(piece) > 1)


def as_list(pieces: Sequences):
    symbols, borders = pieces.symbols.tolist(), pieces.starts.tolist()
    return [
        (tuple(symbols[a:b]), n) for (a, b), n in zip(itertools.pairwise(borders), pieces.counts.tolist(), strict=True)
    ]


def same(table, n_merges, floor=None, **given):
    """Train both ways; the certificate."""
    alphabet = given.pop("alphabet", BYTES)
    expected = learn_merges(*table, alphabet, n_merges, **given)
    result, certificate = learn_merges_cut(*table, alphabet, n_merges, floor=floor, **given)
    assert result.merges.tolist() == expected.merges.tolist()
    assert result.counts.tolist() == expected.counts.tolist()
    assert result.complete
    assert certificate.holds
    first = len(given.get("initial", ()))
    assert certificate.last_count == (result.counts[-1] if len(result.counts) > first else None)
    return certificate


symbol_words = st.lists(
    st.tuples(st.lists(st.integers(-1, 3), min_size=1, max_size=30), st.integers(1, 40)), min_size=1, max_size=30
)


@settings(max_examples=200, deadline=None)
@given(symbol_words, st.integers(1, 200), st.randoms(use_true_random=False))
def test_pieces_equal_those_of_plain_python(words, floor, order):
    pieces = cut_and_deduplicate(*arrays(words), floor)
    assert as_list(pieces) == plain_cut(words, floor)
    order.shuffle(words)
    assert as_list(cut_and_deduplicate(*arrays(words), floor)) == as_list(pieces)


def test_pieces_of_many_long_words():
    """More than the tables hold at first, and prefixes of all lengths for the sort."""
    generator = np.random.default_rng(1)
    words = [(generator.integers(0, 400, generator.integers(2, 12)).tolist(), int(generator.integers(1, 9)))
             for _ in range(40_000)]  # fmt: skip
    words += [([7] * n, n) for n in range(1, 600)] + [(list(range(400)) * 100, 3)]
    assert as_list(cut_and_deduplicate(*arrays(words), 5)) == plain_cut(words, 5)
    assert len(cut_and_deduplicate(*arrays(words), 1).counts) > 1 << 15


def test_nothing_in_nothing_out():
    assert as_list(cut_and_deduplicate(*arrays([]), 1)) == []
    assert as_list(cut_and_deduplicate(*arrays([([], 1), ([5], 9), ([-1, -1, 3, -1], 2)]), 1)) == []
    assert as_list(cut_and_deduplicate(*arrays([([1, 2], 4)]), 5)) == []


def random_table(generator: random.Random):
    """A few words over one to five letters: runs, overlaps and ties; small counts, or some that need 64 bits."""
    letters = range(generator.choice([1, 2, 3, 5]))
    large = generator.random() < 0.1
    words = {}
    for _ in range(generator.randint(1, 25)):
        word = generator.choices(letters, k=generator.choice([1, 4, 8, 8, 20, 70]))
        if generator.random() < 0.2:
            word = list(itertools.chain.from_iterable([symbol] * generator.randint(1, 9) for symbol in word[:8]))
        words[tuple(word)] = generator.randint(1, 2**36) if large else generator.randint(1, generator.choice([2, 40]))
    return list(words.items())


@pytest.mark.parametrize("part", range(4))
def test_a_thousand_random_tables_give_the_merges_of_the_whole(part):
    generator = random.Random(part)
    redone = 0
    for _ in range(250):
        words = random_table(generator)
        given = {
            "tie_break": generator.choice(TIES),
            "min_frequency": generator.choice([1, 1, 1, 5]),
            "max_token_length": generator.choice([None, None, 3]),
            "reserved": generator.choice([(), (b"\0\1", b"\0\0\0")]),
            "alphabet": BYTES[:5],
        }
        certificate = same(
            arrays(words), generator.choice([3, 10, 60]), generator.choice([None, 1, 10, 10**6]), **given
        )
        redone += len(certificate.redone)
    assert redone > 20


def test_a_floor_that_is_too_high_is_found_out_and_lowered():
    words = [(b"low", 5), (b"lower", 2), (b"newest", 6), (b"widest", 3)]
    certificate = same(arrays(words, np.uint8), 8, floor=1000)
    assert certificate.redone[0] == 1000
    assert certificate.floor < 1000
    assert [epoch.floor for epoch in certificate.epochs] == [*certificate.redone, certificate.floor]
    assert certificate.epochs[0].merges == 0
    assert certificate.epochs[-1].merges == 8
    assert certificate.last_count >= certificate.floor
    assert certificate.to_json()["epochs"][0]["floor"] == 1000


def test_a_floor_that_is_low_enough_is_the_last_one():
    words = [(b"low", 500), (b"lower", 200), (b"newest", 600), (b"widest", 300)]
    certificate = same(arrays(words, np.uint8), 4, floor=150)
    assert certificate.redone == ()
    assert certificate.floor == 150


def test_no_merge_and_no_table():
    assert same(arrays([]), 5).last_count is None
    assert same(arrays([([1], 7)]), 5).last_count is None
    assert same(arrays([([1, 2], 7)]), 0).epochs == ()
    assert same(arrays([([1, 2], 7)]), 5, min_frequency=8).last_count is None


def test_byte_ids_and_borders():
    table = arrays([(b"banana", 4), (b"bandana", 3), (b"ananas", 5)], np.uint8)
    ids = np.arange(256, dtype=np.int32)[::-1].copy()
    ids[ord("d")] = -1
    for tie_break in TIES:
        same(table, 20, alphabet=BYTES[::-1], symbol_ids=ids, tie_break=tie_break)


def test_initial_merges():
    words = [(b"banana" * 12, 4), (b"bandana", 3), (b"ananas", 5)]
    table = arrays(words, np.uint8)
    for n in (0, 1, 3, 6):
        initial = np.array(
            [[ord("n"), ord("a")], [ord("b"), ord("a")], [256, 256], [ord("a"), 258], [257, 256], [259, ord("s")]]
        )
        same(table, 14, initial=initial[:n].astype(np.int32))


def test_a_continuing_prefix_that_the_text_has_too():
    alphabet = [b"#", b"a", b"####", b"##a", b"##b"]
    words = [([0, 2, 3], 9), ([1, 3, 4, 3, 4], 5), ([0, 2, 3, 4], 8), ([1, 4, 3, 3], 7)]
    for tie_break in TIES:
        same(arrays(words), 20, alphabet=alphabet, prefix=b"##", tie_break=tie_break)


def test_reduced_tables_that_are_too_large_are_cut_higher():
    generator = random.Random(7)
    words = [(generator.choices(range(5), [16, 8, 4, 2, 1], k=12), 1) for _ in range(300)]
    table = arrays(words)
    expected = learn_merges(*table, BYTES[:5], 100)
    largest = []
    for most in (1 << 40, 300, 1):
        result, certificate = learn_merges_cut(*table, BYTES[:5], 100, max_symbols=most)
        assert result.merges.tolist() == expected.merges.tolist()
        assert certificate.holds
        largest.append(max(epoch.piece_symbols for epoch in certificate.epochs[:-1]))
    assert largest[0] > 300 >= largest[1]


def test_threads_and_chunks_change_nothing(monkeypatch):
    monkeypatch.setattr(cut, "_CHUNK_SYMBOLS", 500)
    generator = random.Random(3)
    words = [(generator.choices(range(30), k=generator.randint(1, 30)), generator.randint(1, 9)) for _ in range(400)]
    table = arrays(words)
    expected = learn_merges(*table, BYTES[:30], 300)
    certificates = []
    for threads in (1, 2, 3, 64):
        result, certificate = learn_merges_cut(*table, BYTES[:30], 300, threads=threads, max_symbols=3000)
        assert result.merges.tolist() == expected.merges.tolist()
        assert result.counts.tolist() == expected.counts.tolist()
        certificates.append(certificate)
    assert certificates == certificates[:1] * 4


def test_stopping_keeps_what_is_proven():
    words = [(word, 3) for word in itertools.product(range(4), repeat=5)]
    table = arrays(words)
    epochs = []
    result, certificate = learn_merges_cut(
        *table, BYTES[:4], 50, floor=500, log=epochs.append, stop=lambda: len(epochs) > 0
    )
    assert len(epochs) == 2
    expected = learn_merges(*table, BYTES[:4], 50)
    assert not result.complete
    assert result.merges.tolist() == expected.merges[: len(result.merges)].tolist()
    assert certificate.holds


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"tie_break": "first_seen"}, ConfigError),
        ({"tie_break": "random"}, ConfigError),
        ({"floor": 0}, ConfigError),
        ({"min_frequency": 0}, ConfigError),
        ({"alphabet": BYTES[:2]}, TrainingError),
    ],
)
def test_what_cannot_be(given, error):
    alphabet = given.pop("alphabet", BYTES)
    with pytest.raises(error):
        learn_merges_cut(*arrays([([1, 2, 1], 2)]), alphabet, 2, **given)


def test_refuses_what_would_overflow():
    with pytest.raises(TrainingError, match="65535"):
        learn_merges_cut(*arrays([([1] * 65_536, 1)]), BYTES, 1)
    with pytest.raises(TrainingError, match=r"2\^62"):
        learn_merges_cut(*arrays([([1, 2], 2**62)]), BYTES, 1)
    with pytest.raises(TrainingError, match="positive"):
        learn_merges_cut(*arrays([([1, 2], 0)]), BYTES, 1)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["code", "web_multilingual", "books"])
@pytest.mark.parametrize("tie_break", ["id", "lexicographic"])
def test_real_tables(shared, group, tie_break):
    texts = []
    for path in sorted((shared / "corpus" / group).glob("*.parquet")):
        texts += pq.read_table(path, columns=["text"])["text"].drop_null().to_pylist()
    table = shardpiece.WordTable.from_texts(texts, "cl100k_base").arrays()
    for floor in (None, 100_000):
        certificate = same(table, 31_744, floor, tie_break=tie_break)
        assert max(epoch.piece_symbols for epoch in certificate.epochs) < 0.5 * len(table[0])
