"""Parity-aware BPE against a plain-Python recount of every group at every step, and against plain BPE."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.training import parity, parity_kernels
from shardpiece.training.merge_loop import learn_merges
from shardpiece.training.merge_rules import MergeRules
from shardpiece.training.parity import TIE_BREAKS, learn_parity_merges

BYTES = [bytes([b]) for b in range(256)]


@pytest.fixture(scope="module", autouse=True)
def _arrays_that_must_grow():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parity, "_HEAP_SLACK", 0)
        patch.setattr(parity, "_RECORD_SLACK", 0)
        patch.setattr(parity, "_FIRST_TABLE", 4)
        yield


def reference(
    rows, n_groups, n_merges, num_global=0, window=None, alpha=2, units=None, development=None,
    tie_break="lexicographic", order=range(256), min_frequency=1, max_length=10**9, reserved=(),
):  # fmt: skip
    """``rows``, ``development``: list of (word, group, count). Returns the merges as (left, right, count, group) and
    the final (tokens, units) of each group."""
    ids = {bytes([b]): order[b] for b in range(256)}
    state = [([bytes([b]) for b in word], g, count) for word, g, count in rows]
    measured = state
    if development is not None:
        measured = [([bytes([b]) for b in word], g, count) for word, g, count in development]
    if units is None:
        units = [max(1, sum(len(word) * count for word, h, count in measured if h == g)) for g in range(n_groups)]
    out, chosen, merges = set(), [], []
    while len(merges) < n_merges:
        pairs = [Counter() for _ in range(n_groups)]
        for symbols, g, count in state:
            for a, b in itertools.pairwise(symbols):
                if len(a + b) <= max_length and a + b not in reserved:
                    pairs[g][a, b] += count
        tokens = [sum(len(symbols) * count for symbols, h, count in measured if h == g) for g in range(n_groups)]
        if len(merges) < num_global:
            group, votes = -1, sum(pairs, Counter())
            if not votes or max(votes.values()) < min_frequency:
                break
        else:
            out |= {g for g in range(n_groups) if max(pairs[g].values(), default=0) < min_frequency}
            left = [g for g in range(n_groups) if g not in out]
            if not left:
                break
            if window is not None:
                recent = Counter(chosen[-window:])
                left = [g for g in left if Fraction(recent[g], window) <= Fraction(alpha) / n_groups] or left
            group = max(left, key=lambda g: (Fraction(tokens[g], units[g]), -g))
            votes = pairs[group]
        top = max(votes.values())
        tied = [pair for pair, count in votes.items() if count == top]
        if tie_break == "id":
            best = min(tied, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        elif tie_break == "sentencepiece":
            best = min(tied, key=lambda pair: (len(pair[0] + pair[1]), pair[0] + pair[1], pair))
        else:
            best = min(tied) if tie_break == "lexicographic" else max(tied)
        ids[best[0] + best[1]] = 256 + len(merges)
        merges.append((*best, top, group))
        chosen.append(group)
        for symbols, _, _ in [*state, *(measured if measured is not state else [])]:
            i = 0
            while i + 1 < len(symbols):
                if (symbols[i], symbols[i + 1]) == best:
                    symbols[i : i + 2] = [best[0] + best[1]]
                i += 1
    tokens = [sum(len(symbols) * count for symbols, h, count in measured if h == g) for g in range(n_groups)]
    return merges, tokens, list(units)


def arrays(rows):
    data = np.frombuffer(b"".join(word for word, _, _ in rows) + b"\0", np.uint8)[:-1]
    starts = np.cumsum([0, *(len(word) for word, _, _ in rows)]).astype(np.int64)
    counts = np.array([count for _, _, count in rows], np.int64)
    return data, starts, counts, np.array([g for _, g, _ in rows], np.int32)


def learn(rows, n_groups, n_merges, *, order=range(256), development=None, units=None, max_length=None, **settings):
    """As the reference."""
    order = np.array(order, np.int32)
    alphabet = [b""] * 256
    for b in range(256):
        alphabet[order[b]] = bytes([b])
    result = learn_parity_merges(
        *arrays(rows), n_groups, alphabet, n_merges, symbol_ids=order, max_token_length=max_length,
        development=None if development is None else arrays(development),
        units=None if units is None else np.array(units, np.int64), **settings,
    )  # fmt: skip
    merges = []
    for (left, right), count, group in zip(
        result.merges.tolist(), result.counts.tolist(), result.groups.tolist(), strict=True
    ):
        merges.append((alphabet[left], alphabet[right], count, group))
        alphabet.append(alphabet[left] + alphabet[right])
    return merges, result.tokens.tolist(), result.units.tolist()


ROWS = [(b"low", 0, 9), (b"lower", 0, 4), (b"newest", 0, 6), (b"wide", 1, 2), (b"widest", 1, 3), (b"low", 1, 1)]


def test_the_worst_compressed_group_chooses():
    merges, tokens, units = learn(ROWS, 2, 4)
    # Both start at one token per byte: the first of equals is served, then the other.
    assert merges == [(b"l", b"o", 13, 0), (b"d", b"e", 5, 1), (b"lo", b"w", 13, 0), (b"i", b"de", 5, 1)]
    assert units == [27 + 20 + 36, 8 + 18 + 3]
    assert tokens == [83 - 26, 29 - 10 - 2]
    result = learn_parity_merges(*arrays(ROWS), 2, BYTES, 4)
    assert result.costs.tolist() == [57 / 83, 17 / 29]
    assert (result.merges.dtype, result.counts.dtype, result.groups.dtype) == (np.int32, np.int64, np.int32)


def test_units_say_whose_tokens_are_expensive():
    merges, _, units = learn(ROWS, 2, 3, units=[1000, 1])
    assert {group for *_, group in merges} == {1}
    assert units == [1000, 1]


def test_a_group_that_runs_out_leaves_the_rest_to_the_others():
    rows = [(b"ab", 0, 1), (b"cdefgh", 1, 5), (b"x", 2, 7)]
    merges, _, _ = learn(rows, 3, 100)
    # Group 2 costs most for ever, but has no pair; group 0 has only one.
    assert [group for *_, group in merges] == [0, 1, 1, 1, 1, 1]
    assert (merges, *learn(rows, 3, 100)[1:]) == reference(rows, 3, 100)
    assert [group for *_, group in learn(rows, 3, 100, min_frequency=2)[0]] == [1] * 5
    assert learn([], 3, 10)[0] == learn([], 0, 10)[0] == []


def test_window_passes_over_a_group_taken_too_often():
    rows = [(b"abcdefghijklmnop", 0, 1), (b"ABCDEFGHIJKLMNOP", 1, 1)]

    def groups(**settings):
        got = learn(rows, 2, 12, units=[1, 1000], **settings)
        assert got == reference(rows, 2, 12, units=[1, 1000], **settings)
        return [group for *_, group in got[0]]

    assert groups() == groups(window=4, alpha=2) == [0] * 12
    # With more than half of the last four a group has to wait.
    assert groups(window=4, alpha=1) == [0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0]
    # With none allowed, the rule cannot be kept where both were taken of late.
    assert groups(window=3, alpha=0) == [0, 1, 0, 0] * 3


words = st.tuples(
    st.lists(st.sampled_from(b"abcd"), min_size=1, max_size=16).map(bytes), st.integers(0, 3), st.integers(1, 40)
)
tables = st.lists(words, min_size=1, max_size=24)


def narrow(rows, letters, n_groups):
    """Fewer letters and groups, equal rows added up, sorted as a word table is."""
    counts = Counter()
    for word, group, count in rows:
        counts[bytes(b"abcd"[b % letters] for b in word), group % n_groups] += count
    return [(word, group, count) for (word, group), count in sorted(counts.items())]


@settings(max_examples=250, deadline=None)
@given(
    tables,
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from(sorted(TIE_BREAKS)),
    st.sampled_from([0, 0, 0, 3, 12]),
    st.sampled_from([(None, 2), (1, 1), (4, 1), (6, 2), (5, 1.5), (3, 0)]),
    st.none() | st.lists(st.integers(1, 30), min_size=4, max_size=4),
    st.none() | tables,
    st.sampled_from([1, 1, 3, 30]),
    st.sampled_from([None, None, 2, 5]),
    st.permutations(list(range(256))),
    st.sampled_from([2, 64]),
    st.sampled_from([0.0, 1.25]),
)
def test_equals_a_naive_recount(
    rows, letters, n_groups, tie_break, num_global, rule, units, development, min_frequency, max_length, order,
    divisor, arena,
):  # fmt: skip
    rows = narrow(rows, letters, n_groups)
    units = units and units[:n_groups]
    if development is not None:
        # Every group has some.
        development = narrow([*development, *((b"ab", g, 1) for g in range(n_groups))], letters, n_groups)
    window, alpha = rule
    common = {
        "num_global": num_global, "window": window, "alpha": alpha, "units": units, "development": development,
        "tie_break": tie_break, "order": order, "min_frequency": min_frequency, "reserved": (b"abc", b"aa"),
    }  # fmt: skip
    expected = reference(rows, n_groups, 40, max_length=max_length or 10**9, **common)
    got = learn(rows, n_groups, 40, max_length=max_length, floor_divisor=divisor, arena_factor=arena, **common)
    assert got == expected


@settings(max_examples=100, deadline=None)
@given(tables, st.integers(1, 4), st.sampled_from([0, 5]), st.randoms(use_true_random=False))
def test_order_of_the_rows_does_not_matter(rows, n_groups, num_global, random):
    rows = narrow(rows, 4, n_groups)
    shuffled = list(rows)
    random.shuffle(shuffled)
    # One row of a word split in two.
    word, group, _ = shuffled[0]
    shuffled.append((word, group, 2**40))
    rows = [(w, g, c + 2**40 if (w, g) == (word, group) else c) for w, g, c in rows]
    assert learn(rows, n_groups, 40, num_global=num_global) == learn(shuffled, n_groups, 40, num_global=num_global)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(1, 3))
def test_runs_of_one_letter(length, n_groups):
    rows = [(b"a" * (length + i), i % n_groups, 3 + i) for i in range(4)]
    assert learn(rows, n_groups, 20, arena_factor=0.0) == reference(rows, n_groups, 20)


def test_spellings_longer_than_their_room():
    rows = [(b"a" * 6000, 0, 1), (b"ab" * 2500, 1, 1)]
    assert learn(rows, 2, 30) == reference(rows, 2, 30)


def test_counts_above_32_bits():
    rows = [(b"the", 0, 2**33), (b"the", 1, 2**40), (b"then", 0, 2**31 + 5), (b"  ", 1, 2**32), (b"xy", 2, 2**50 + 1)]
    for num_global in (0, 2):
        assert learn(rows, 3, 8, num_global=num_global) == reference(rows, 3, 8, num_global=num_global)
    assert learn(rows, 3, 1, num_global=1)[0] == [(b"x", b"y", 2**50 + 1, -1)]


@settings(max_examples=300, deadline=None)
@given(*[st.integers(0, 2**62), st.integers(1, 2**62)] * 2)
def test_costs_are_compared_exactly(a, b, c, d):
    assert parity_kernels.costs_more(a, b, c, d) == (a * d > c * b)
    assert not parity_kernels.costs_more(a, b, a, b)
    assert parity_kernels.costs_more(a, b, a, b + 1) == (a > 0)


def test_all_global_is_plain_bpe_on_real_text(shared):
    rows, plain = real_rows(shared)
    n_merges = 3000
    for tie_break in TIE_BREAKS:
        got = learn_parity_merges(*arrays(rows), 8, BYTES, n_merges, num_global=n_merges, tie_break=tie_break)
        expected = summed(plain, n_merges, tie_break)
        assert np.array_equal(got.merges, expected.merges)
        assert np.array_equal(got.counts, expected.counts)
        assert (got.groups == -1).all()


def test_parity_makes_costs_more_equal_on_real_text(shared):
    rows, _ = real_rows(shared)
    units = np.ones(8, np.int64)  # translations of the same text
    plain = learn_parity_merges(*arrays(rows), 8, BYTES, 3000, num_global=3000, units=units)
    hybrid = learn_parity_merges(*arrays(rows), 8, BYTES, 3000, num_global=1500, units=units)
    parity = learn_parity_merges(*arrays(rows), 8, BYTES, 3000, units=units)
    spread = [result.costs.max() / result.costs.min() for result in (plain, hybrid, parity)]
    assert spread[0] > spread[1] > spread[2]
    assert np.array_equal(plain.merges[:1500], hybrid.merges[:1500])


def real_rows(shared):
    """The words of a text in eight languages: rows, and (word, count) over all."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from shardpiece import WordTable

    texts = {}
    for path in sorted((shared / "corpus" / "parallel").glob("*.parquet")):
        table = pq.read_table(path, columns=["id", "text", "lang"])
        table = table.filter(pc.starts_with(table["id"], "pud:"))
        for text, lang in zip(table["text"].to_pylist(), table["lang"].to_pylist(), strict=True):
            texts.setdefault(lang, []).append(text)
    counts, total = Counter(), Counter()
    for group, lang in enumerate(sorted(texts)[:8]):
        for word, count in WordTable.from_texts(texts[lang][:400], "cl100k_base").to_counter().items():
            counts[word, group] += count
            total[word] += count
    return [(word, group, count) for (word, group), count in sorted(counts.items())], sorted(total.items())


def summed(words, n_merges, tie_break):
    data, starts, counts, _ = arrays([(word, 0, count) for word, count in words])
    return learn_merges(data, starts, counts, BYTES, n_merges, tie_break=tie_break)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(-1, 3), min_size=1, max_size=12), st.integers(0, 2), st.integers(1, 40)),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from([[b"a", b"b", b"##a", b"##b"], [b"a", b"b", b"ab", b"ba"], [b"a", b"1", "é".encode(), b"2"]]),
    st.sampled_from(sorted(TIE_BREAKS)),
    st.sampled_from([None, MergeRules(max_digits=1)]),
    st.sampled_from([[], [[0, 0], [4, 0]]]),
)
def test_one_group_is_plain_bpe_with_all_its_settings(rows, alphabet, tie_break, rules, initial):
    data = np.array([s for word, _, _ in rows for s in word], np.int32)
    starts = np.cumsum([0, *(len(word) for word, _, _ in rows)])
    counts, groups = np.array([count for *_, count in rows]), np.array([g for _, g, _ in rows])
    common = {
        "tie_break": tie_break, "rules": rules, "prefix": b"##", "reserved": (b"aba",),
        "initial": np.array(initial, np.int32).reshape(-1, 2),
    }  # fmt: skip
    expected = learn_merges(data, starts, counts, alphabet, 30, **common)
    for got in (
        learn_parity_merges(data, starts, counts, groups, 3, alphabet, 30, num_global=30, **common),
        learn_parity_merges(data, starts, counts, 0 * groups, 1, alphabet, 30, floor_divisor=2, **common),
    ):
        assert got.merges.tolist() == expected.merges.tolist()
        assert got.counts.tolist() == expected.counts.tolist()


def test_symbols_of_any_alphabet_and_borders_in_words():
    # é and ñ are one symbol of two bytes each; -1 stands for what the alphabet lacks.
    alphabet = [b"a", "é".encode(), "ñ".encode()]
    words = [([0, 1, -1, 0, 1], 0, 3), ([1, 2, 1, 2], 1, 2), ([-1], 1, 1), ([2, -1, 2], 0, 5)]
    data = np.array([s for word, _, _ in words for s in word], np.int32)
    starts = np.cumsum([0, *(len(word) for word, _, _ in words)])
    counts = np.array([count for *_, count in words])
    groups = np.array([g for _, g, _ in words])
    result = learn_parity_merges(data, starts, counts, groups, 2, alphabet, 10)
    assert result.merges.tolist() == [[0, 1], [1, 2], [4, 4]]
    assert result.groups.tolist() == [0, 1, 1]
    assert result.counts.tolist() == [6, 4, 2]
    assert result.units.tolist() == [3 * 7 + 5 * 5, 2 * 8 + 1]  # bytes; a border counts one
    assert result.tokens.tolist() == [3 * 3 + 5 * 3, 2 * 1 + 1]


def test_initial_merges_come_first():
    rows = [(b"aaabab", 0, 3), (b"ab", 1, 2), (b"b", 1, 4), (b"aab", 2, 5)]
    result = learn_parity_merges(*arrays(rows), 3, BYTES, 5, initial=np.array([[97, 98], [97, 256]], np.int32))
    # They leave a+aab+ab in group 0 and one token of every other word.
    assert result.merges.tolist() == [[97, 98], [97, 256], [97, 257], [258, 256]]
    assert result.groups.tolist() == [-1, -1, 0, 0]
    assert result.counts.tolist() == [-1, -1, 3, 3]
    assert result.tokens.tolist() == [3, 2 + 4, 5]
    assert result.units.tolist() == [18, 4 + 4, 15]


@settings(max_examples=60, deadline=None)
@given(tables, st.integers(1, 4), st.integers(0, 12), st.sampled_from([0, 6]))
def test_a_run_without_window_can_be_continued(rows, n_groups, done, num_global):
    rows = narrow(rows, 3, n_groups)
    common = (*arrays(rows), n_groups, BYTES, 40)
    whole = learn_parity_merges(*common, num_global=num_global)
    rest = learn_parity_merges(*common, num_global=num_global, initial=whole.merges[:done])
    assert np.array_equal(rest.merges, whole.merges)
    assert np.array_equal(rest.tokens, whole.tokens)
    assert np.array_equal(rest.counts[done:], whole.counts[done:])
    assert np.array_equal(rest.groups[done:], whole.groups[done:])


def test_progress_and_stop():
    seen = []
    learn(ROWS, 2, 10, progress=seen.append)
    assert (seen[-1].done, seen[-1].total) == (10, 10)
    assert (seen[-1].left, seen[-1].right, seen[-1].count) == (b"s", b"t", 3)
    rows = [(bytes([i // 200 + 32, i % 200 + 40]), 0, 10_000 - i) for i in range(5000)]
    result = learn_parity_merges(*arrays(rows), 1, BYTES, 5000, stop=lambda: True)
    assert 0 < len(result.merges) < 5000
    assert not result.complete
    assert learn_parity_merges(*arrays(rows), 1, BYTES, 5000, stop=lambda: False).complete


@pytest.mark.parametrize(
    "bad",
    [
        {"tie_break": "first_seen"},
        {"min_frequency": 0},
        {"max_length": 0},
        {"num_global": -1},
        {"window": 0},
        {"alpha": -1},
        {"units": [1]},
        {"units": [1, 0]},
    ],
)
def test_settings_out_of_range(bad):
    with pytest.raises(ConfigError):
        learn(ROWS, 2, 2, **bad)
    with pytest.raises(ConfigError, match="the same spelling"):
        learn_parity_merges(*arrays(ROWS), 2, [b"a", b"a"], 2)


def test_refuses_tables_that_make_no_sense():
    with pytest.raises(TrainingError, match="0 to 0"):
        learn(ROWS, 1, 2)
    with pytest.raises(TrainingError, match="65535"):
        learn([(b"a" * 65_536, 0, 1)], 1, 1)
    with pytest.raises(TrainingError, match=r"2\^62"):
        learn([(b"ab", 0, 2**62)], 1, 1)
    with pytest.raises(TrainingError, match="no development text"):
        learn(ROWS, 2, 2, development=[(b"low", 0, 1)])
    with pytest.raises(TrainingError, match="alphabet"):
        learn_parity_merges(np.array([0, 1], np.int32), np.array([0, 2]), *np.ones((2, 1), int), 2, [b"a"], 2)
