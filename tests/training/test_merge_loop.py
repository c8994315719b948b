"""The merge loop against a plain-Python recount, on the literature's corpora and on generated tables."""

import io
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.training.merge_loop import TIE_BREAKS, learn_merges
from tests.conftest import TEXTS
from tests.training import reference

BYTES = [bytes([b]) for b in range(256)]


def flat(words, dtype):
    data = np.array([s for word, _ in words for s in word], dtype)
    starts = np.cumsum([0, *(len(word) for word, _ in words)]).astype(np.int64)
    return data, starts, np.array([count for _, count in words], np.int64)


def pairs(result):
    return [(tuple(pair), count) for pair, count in zip(result.merges.tolist(), result.counts.tolist(), strict=True)]


def spell(merges, alphabet, prefix=b""):
    """((left id, right id), count) → ((left spelling, right spelling), count)."""
    spelled, result = list(alphabet), []
    for (a, b), count in merges:
        result.append(((spelled[a], spelled[b]), count))
        right = spelled[b]
        spelled.append(spelled[a] + (right[len(prefix) :] if right.startswith(prefix) else right))
    return result


def learn(words, n_merges, **settings):
    """Merges of byte words as ((left bytes, right bytes), count)."""
    return spell(pairs(learn_merges(*flat(words, np.uint8), BYTES, n_merges, **settings)), BYTES)


def naive(words, n_merges, *arguments, **settings):
    return spell(reference.learn_merges(words, BYTES, n_merges, *arguments, **settings), BYTES)


def symbols_of(words, mark=lambda characters: characters):
    """(base ids, count) of text words, and the alphabet in order of first sight; ``mark`` makes the base symbols of a
    list of characters."""
    ids, table = {}, []
    for word, count in words:
        table.append(([ids.setdefault(symbol, len(ids)) for symbol in mark(list(word))], count))
    return table, [symbol.encode() for symbol in ids]


def separate_end(characters):
    return [*characters, "</w>"]


def attached_end(characters):
    return [*characters[:-1], characters[-1] + "</w>"]


def continuing(characters):
    return [characters[0], *("##" + c for c in characters[1:])]


NEWEST = [("low", 5), ("lower", 2), ("newest", 6), ("widest", 3)]
HUGS = [(b"hug", 10), (b"pug", 5), (b"pun", 12), (b"bun", 4), (b"hugs", 5)]
newest = [(word.encode(), count) for word, count in NEWEST]


def test_golden_merges_of_the_newest_corpus():
    # es and st are both seen 9 times, lo and ow 7 times: the tie break decides.
    assert [a + b for (a, b), _ in learn(newest, 6)] == [b"es", b"est", b"lo", b"low", b"ew", b"ewest"]
    assert [a + b for (a, b), _ in learn(newest, 6, tie_break="first_seen")] == [
        b"es", b"est", b"lo", b"low", b"ne", b"new",
    ]  # fmt: skip
    assert learn(newest, 2, tie_break="lexicographic_last")[0] == ((b"s", b"t"), 9)
    assert [count for _, count in learn(newest, 6)] == [9, 9, 7, 7, 6, 6]


def test_golden_merges_with_an_end_of_word_symbol():
    def merged(words, n, tie_break):
        table, alphabet = symbols_of(words, separate_end)
        result = spell(pairs(learn_merges(*flat(table, np.int32), alphabet, n, tie_break=tie_break)), alphabet)
        return " ".join((a + b).decode() for (a, b), _ in result)

    assert merged(NEWEST, 5, "lexicographic") == "es est est</w> lo low"
    assert merged(NEWEST, 10, "first_seen") == "es est est</w> lo low ne new newest</w> low</w> wi"
    # low</w> ties with es, st and t</w> at 9; it stands first in the table.
    assert merged([*NEWEST, ("slow", 4)], 4, "first_seen") == "lo low low</w> es"
    assert merged([*NEWEST, ("slow", 4)], 4, "lexicographic") == "lo low es est"


def test_golden_merges_of_the_hugs_corpus():
    assert learn(HUGS, 3) == [((b"u", b"g"), 20), ((b"u", b"n"), 16), ((b"h", b"ug"), 15)]
    for tie_break in TIE_BREAKS:
        assert learn(HUGS, 3, tie_break=tie_break) == learn(HUGS, 3)


words = st.lists(
    st.tuples(st.lists(st.sampled_from(b"abcd"), min_size=1, max_size=24).map(bytes), st.integers(1, 40)),
    min_size=1,
    max_size=25,
    unique_by=lambda word: word[0],
)


@settings(max_examples=250, deadline=None)
@given(
    words,
    st.sampled_from(sorted(TIE_BREAKS)),
    st.sampled_from([2, 64]),
    st.sampled_from([0.0, 1.25]),
    st.integers(1, 4),
    st.sampled_from([1, 1, 3, 30]),
    st.sampled_from([None, None, 2, 5]),
    st.permutations(list(range(256))),
)
def test_equals_a_naive_recount(table, tie_break, divisor, arena, letters, min_frequency, max_length, order):
    table = [(bytes(b"abcd"[b % letters] for b in word), count) for word, count in table]
    kept = dict(table)  # shortening the alphabet can make words equal
    table = list(kept.items())
    alphabet = [b""] * 256
    for b in range(256):
        alphabet[order[b]] = bytes([b])
    expected = reference.learn_merges(
        [([order[b] for b in word], count) for word, count in table], alphabet, 50, tie_break,
        min_frequency=min_frequency, max_length=max_length or 10**9, reserved=(b"abc", b"aa"),
    )  # fmt: skip
    got = learn_merges(
        *flat(table, np.uint8), alphabet, 50, symbol_ids=np.array(order, np.int32), tie_break=tie_break,
        min_frequency=min_frequency, max_token_length=max_length, reserved=(b"abc", b"aa"), floor_divisor=divisor,
        arena_factor=arena, frequencies=True,
    )  # fmt: skip
    assert pairs(got) == expected
    merges = [pair for pair, _ in expected]
    cut = reference.frequencies([([order[b] for b in word], count) for word, count in table], merges, 256)
    assert got.frequencies.tolist() == cut


# Alphabets in which different sequences are spelled alike, and one where none are.
ALPHABETS = [
    ([b"a", b"b", b"ab", b"ba"], b""),
    ([b"a", b"b", b"a</w>", b"b</w>"], b""),
    ([b"a", b"<", b"<a", b"a<"], b""),
    ([b"a", b"#", b"#a", b"##"], b"#"),
    ([b"a", b"b", b"##a", b"##b"], b"##"),
    ([b"a", b"b", "é".encode(), "▁".encode()], b""),
]


@settings(max_examples=250, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(-1, 3), min_size=1, max_size=16).map(tuple), st.integers(1, 9)),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(ALPHABETS),
    st.sampled_from(sorted(TIE_BREAKS)),
    st.sampled_from([2, 64]),
    st.sampled_from([0.0, 1.25]),
    st.sampled_from([None, None, 3]),
    st.sampled_from([(), (b"ab", b"aa", b"a#")]),
    st.sampled_from([None, None, True, False]),
    st.integers(0, 40),
)
def test_base_symbols_equal_a_naive_recount(
    table, alphabet, tie_break, divisor, arena, max_length, reserved, unique, first
):
    alphabet, prefix = alphabet
    ambiguous = alphabet[2] != "é".encode()
    common = {"reserved": reserved, "prefix": prefix}
    expected = reference.learn_merges(
        table, alphabet, 40, tie_break, max_length=max_length or 10**9, unique=ambiguous if unique is None else unique,
        **common,
    )  # fmt: skip

    def train(n, **more):
        return learn_merges(
            *flat(table, np.int32), alphabet, n, tie_break=tie_break, max_token_length=max_length, unique=unique,
            floor_divisor=divisor, arena_factor=arena, **common, **more,
        )  # fmt: skip

    assert pairs(train(40)) == expected
    start = train(first)
    resumed = train(40, initial=start.merges)
    k = len(start.merges)
    assert pairs(resumed) == [(pair, -1) for pair, _ in expected[:k]] + expected[k:]


@settings(max_examples=100, deadline=None)
@given(words, st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12), st.sampled_from([1, 8]))
def test_initial_merges_are_applied_in_order(table, choices, times):
    """Any merges, those of the corpus or not, and words long enough for the heap."""
    alphabet = [b"a", b"b", b"c", b"d"]
    table = [([b - ord("a") for b in word] * times, count) for word, count in table]
    initial = []
    for a, b in choices:
        pair = (a % (4 + len(initial)), b % (4 + len(initial)))
        if pair not in initial:
            initial.append(pair)
    expected = reference.learn_merges(table, alphabet, 20, unique=False, initial=initial)
    got = learn_merges(*flat(table, np.int32), alphabet, 20, initial=np.array(initial, np.int32).reshape(-1, 2))
    assert pairs(got) == expected


@pytest.mark.parametrize(
    ("initial", "message"),
    [
        ([[0, 9]], "does not exist"),
        ([[0, 4]], "does not exist"),
        ([[0, 1], [0, 1]], "twice"),
        ([[2, 3]], "spelled like"),
        ([[0, 0]] + [[i, i] for i in range(4, 21)], "longer"),
        ([[0, 1]] * 60, "only 50"),
    ],
)
def test_initial_merges_that_cannot_be(initial, message):
    with pytest.raises(ConfigError, match=message):
        learn_merges(
            np.array([0, 1, 0, 1], np.uint8), np.array([0, 4]), np.array([3]), [b"a", b"b", b"x", b"y"], 50,
            initial=np.array(initial), reserved=(b"xy",),
        )  # fmt: skip


def test_a_spelling_is_never_there_twice():
    # "<" is text and part of the marker: "a" "<" and the base symbol "a<" are spelled alike.
    alphabet = [b"a", b"<", b"a<"]
    table = [((0, 1), 9), ((2, 0), 4), ((0, 1, 0), 3)]
    got = spell(pairs(learn_merges(*flat(table, np.int32), alphabet, 10)), alphabet)
    # ("a", "<") would be "a<"; ("a<", "a") takes the spelling that ("a", "<a") has too.
    assert got == [((b"a<", b"a"), 4), ((b"<", b"a"), 3)]


def test_continuing_words_are_spelled_without_the_prefix():
    table, alphabet = symbols_of([("abab", 9), ("ab", 5), ("xab", 20)], continuing)
    got = spell(pairs(learn_merges(*flat(table, np.int32), alphabet, 10, prefix=b"##")), alphabet, b"##")
    assert got == [((b"##a", b"##b"), 29), ((b"x", b"##ab"), 20), ((b"a", b"##b"), 14), ((b"ab", b"##ab"), 9)]


def subword_nmt_codes(text, n_merges):
    learner = pytest.importorskip("subword_nmt.learn_bpe")
    out = io.StringIO()
    learner.learn_bpe(io.StringIO(text), out, n_merges, min_frequency=2)
    return [tuple(line.split(" ")) for line in out.getvalue().splitlines()[1:]]


def codes(text, n_merges):
    """The same with the merge loop: the last character of a word carries the marker."""
    counts = Counter(word for line in io.StringIO(text) for word in line.strip("\r\n ").split(" ") if word)
    table, alphabet = symbols_of(counts.items(), attached_end)
    merges = learn_merges(
        *flat(table, np.int32), alphabet, n_merges, tie_break="lexicographic_last", min_frequency=2, unique=False
    )
    return [(a.decode(), b.decode()) for (a, b), _ in spell(pairs(merges), alphabet)]


def plain_words(text):
    """Without the white space that subword-nmt's own files cannot hold."""
    return " ".join(re.findall(r"\S+", text))


def test_equals_subword_nmt():
    text = "\n".join(plain_words(text or "") for text in TEXTS for _ in range(2))
    expected = subword_nmt_codes(text, 300)
    assert len(expected) > 100
    assert codes(text, 300) == expected


@pytest.mark.slow
def test_equals_subword_nmt_on_a_corpus(shared):
    import pyarrow.parquet as pq

    texts = pq.read_table(shared / "corpus" / "web_multilingual" / "part-00000.parquet")["text"].drop_null()
    step = max(1, int(texts.nbytes / 20e6))
    text = "\n".join(plain_words(text) for text in texts.to_pylist()[::step])
    assert codes(text, 2000) == subword_nmt_codes(text, 2000)


@settings(max_examples=60, deadline=None)
@given(words, st.randoms(use_true_random=False))
def test_order_of_the_words_does_not_matter(table, random):
    shuffled = list(table)
    random.shuffle(shuffled)
    assert learn(table, 40) == learn(shuffled, 40)
    assert learn(table, 40, tie_break="id") == learn(shuffled, 40, tie_break="id")


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(1, 3))
def test_runs_of_one_letter(length, words_of_it):
    table = [(b"a" * (length + i), 3 + i) for i in range(words_of_it)]
    assert learn(table, 20, arena_factor=0.0) == naive(table, 20)


def test_counts_above_32_bits():
    table = [(b"the", 2**33), (b"then", 2**31 + 5), (b"  ", 2**32), (b"xy", 2**32 - 1)]
    assert learn(table, 4) == naive(table, 4)
    assert learn(table, 1) == [((b"h", b"e"), 2**33 + 2**31 + 5)]


def test_progress_reaches_the_end_and_gives_checkpoints():
    seen = []
    learn(newest, 10, progress=lambda now: seen.append((now, now.result())))
    now, result = seen[-1]
    assert (now.done, now.total) == (10, 10)
    assert (now.left, now.right) == learn(newest, 10)[-1][0]
    assert now.count == learn(newest, 10)[-1][1]
    assert spell(pairs(result), BYTES) == learn(newest, 10)
    assert not result.complete


def test_stops_when_told():
    result = learn_merges(*flat(newest, np.uint8), BYTES, 10, stop=lambda: True)
    assert len(result.merges) == 0
    assert not result.complete
    asked = []
    result = learn_merges(*flat(newest, np.uint8), BYTES, 10, stop=lambda: asked.append(1) or len(asked) > 1)
    assert not result.complete or len(result.merges) == 10
    first = learn_merges(*flat(newest, np.uint8), BYTES, 4).merges
    result = learn_merges(*flat(newest, np.uint8), BYTES, 10, initial=first, stop=lambda: True)
    assert result.merges.tolist() == first.tolist()
    assert not result.complete
    assert learn_merges(*flat(newest, np.uint8), BYTES, 10).complete


def test_stops_when_nothing_is_left():
    assert len(learn([(b"ab", 1)], 100)) == 1
    assert learn([(b"a", 5)], 10) == []
    assert learn([], 10) == []


@pytest.mark.parametrize(
    "bad",
    [{"tie_break": "random"}, {"min_frequency": 0}, {"max_token_length": 0}, {"symbol_ids": np.zeros(3)}],
)
def test_settings_out_of_range(bad):
    with pytest.raises(ConfigError):
        learn(newest, 2, **bad)


def test_symbols_outside_the_alphabet():
    with pytest.raises(TrainingError, match="outside the alphabet"):
        learn_merges(*flat([((0, 2), 1)], np.int32), [b"a", b"b"], 1)
    with pytest.raises(ConfigError, match="same spelling"):
        learn_merges(*flat([((0, 1), 1)], np.int32), [b"a", b"a"], 1)


def test_refuses_what_would_overflow():
    with pytest.raises(TrainingError, match="65535"):
        learn([(b"a" * 65_536, 1)], 1)
    with pytest.raises(TrainingError, match=r"2\^62"):
        learn([(b"ab", 2**62)], 1)
