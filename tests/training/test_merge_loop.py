"""The merge loop against a plain-Python recount, on the literature's corpora and on generated tables."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.training.merge_loop import TIE_BREAKS, learn_merges
from tests.training import reference


def arrays(words):
    data = np.frombuffer(b"".join(word for word, _ in words) + b"\0", np.uint8)[:-1]
    starts = np.cumsum([0, *(len(word) for word, _ in words)]).astype(np.int64)
    return data, starts, np.array([count for _, count in words], np.int64)


def learn(words, n_merges, *, byte_ids=None, **settings):
    """The merges as ((left bytes, right bytes), count), as the reference gives them."""
    order = byte_ids or list(range(256))
    tokens = {order[b]: bytes([b]) for b in range(256)}
    result = learn_merges(*arrays(words), n_merges, byte_ids=np.array(order, np.int32), **settings)
    merges = []
    for i, ((left, right), count) in enumerate(zip(result.merges.tolist(), result.counts.tolist(), strict=True)):
        merges.append(((tokens[left], tokens[right]), count))
        tokens[256 + i] = tokens[left] + tokens[right]
    return merges


NEWEST = [(b"low", 5), (b"lower", 2), (b"newest", 6), (b"widest", 3)]
HUGS = [(b"hug", 10), (b"pug", 5), (b"pun", 12), (b"bun", 4), (b"hugs", 5)]


def test_golden_merges_of_the_newest_corpus():
    # es and st are both seen 9 times, lo and ow 7 times: the tie break decides.
    assert [a + b for (a, b), _ in learn(NEWEST, 6)] == [b"es", b"est", b"lo", b"low", b"ew", b"ewest"]
    assert [a + b for (a, b), _ in learn(NEWEST, 6, tie_break="first_seen")] == [
        b"es", b"est", b"lo", b"low", b"ne", b"new",
    ]  # fmt: skip
    assert learn(NEWEST, 2, tie_break="lexicographic_last")[0] == ((b"s", b"t"), 9)
    assert [count for _, count in learn(NEWEST, 6)] == [9, 9, 7, 7, 6, 6]


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
    expected = reference.learn_merges(
        table, 50, tie_break, order, min_frequency, max_length or 10**9, reserved=(b"abc", b"aa")
    )
    got = learn(
        table, 50, tie_break=tie_break, byte_ids=order, min_frequency=min_frequency, max_token_length=max_length,
        reserved=(b"abc", b"aa"), floor_divisor=divisor, arena_factor=arena,
    )  # fmt: skip
    assert got == expected


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
    assert learn(table, 20, arena_factor=0.0) == reference.learn_merges(table, 20)


def test_counts_above_32_bits():
    table = [(b"the", 2**33), (b"then", 2**31 + 5), (b"  ", 2**32), (b"xy", 2**32 - 1)]
    assert learn(table, 4) == reference.learn_merges(table, 4)
    assert learn(table, 1) == [((b"h", b"e"), 2**33 + 2**31 + 5)]


def test_progress_reaches_the_end():
    seen = []
    learn(NEWEST, 10, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (10, 10)


def test_stops_when_nothing_is_left():
    assert len(learn([(b"ab", 1)], 100)) == 1
    assert learn([(b"a", 5)], 10) == []
    assert learn([], 10) == []


@pytest.mark.parametrize(
    "bad",
    [{"tie_break": "random"}, {"min_frequency": 0}, {"max_token_length": 0}],
)
def test_settings_out_of_range(bad):
    with pytest.raises(ConfigError):
        learn(NEWEST, 2, **bad)


def test_refuses_what_would_overflow():
    with pytest.raises(TrainingError, match="65535"):
        learn([(b"a" * 65_536, 1)], 1)
    with pytest.raises(TrainingError, match=r"2\^62"):
        learn([(b"ab", 2**62)], 1)
