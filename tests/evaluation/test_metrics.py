"""Figures from sums, against plain Python, packages and published figures."""

import random
from collections import Counter

import numpy as np
import pytest

from shardpiece.evaluation import metrics
from shardpiece.evaluation.cost import DEFAULT_SHAPES, attention_ratio, cache_bytes_per_token, cost, parameters
from shardpiece.evaluation.parallel import ParallelCounts, choose_pivot, key_hashes, premiums
from shardpiece.evaluation.schema import GroupMetrics
from tests.evaluation import reference


def counts(seed: int, n: int = 300) -> np.ndarray:
    rng = random.Random(seed)
    return np.array([rng.choice([0, 1, 1, 2, 5, 40, 3000]) for _ in range(n)])


@pytest.mark.parametrize("seed", range(5))
def test_renyi_and_gini_equal_plain_python(seed):
    values = counts(seed)
    tokens = Counter({i: n for i, n in enumerate(values.tolist()) if n})
    assert metrics.renyi_efficiency(values, 300) == pytest.approx(reference.renyi_efficiency(tokens, 300))
    assert metrics.gini(values.tolist()) == pytest.approx(reference.gini(values.tolist()))


@pytest.mark.parametrize("alpha", [2.5, 3.0, 0.5])
def test_renyi_equals_tokenization_scorer(alpha):
    scorer = pytest.importorskip("tokenization_scorer")
    values = counts(7)
    text = " ".join(f"t{i}" for i, n in enumerate(values.tolist()) for _ in range(n))
    own = metrics.renyi(values, len(values), alpha)
    assert own.efficiency_of_used == pytest.approx(scorer.score(text, metric="renyi", power=alpha))
    assert own.efficiency == pytest.approx(scorer.score(text, metric="renyi", power=alpha, vocab=len(values)))
    shannon = scorer.score(text, metric="shannon_entropy") * np.log(2)
    assert metrics.renyi_entropy(values, 1) == pytest.approx(shannon)


def test_figures_that_are_not_defined_are_none():
    nothing = np.zeros(5, np.int64)
    assert metrics.ratio(1, 0) is None
    assert metrics.renyi(nothing, 5).efficiency is None
    assert metrics.renyi(np.array([7]), 1).efficiency is None
    assert metrics.renyi(np.array([7, 0]), 2).efficiency == 0
    assert metrics.renyi(np.array([7, 0]), 2).efficiency_of_used is None
    assert metrics.gini([]) is metrics.gini([1.0]) is metrics.gini([0.0, 0.0]) is None
    assert metrics.gini([2.0, 2.0, 2.0]) == 0
    assert metrics.frequency_curve(nothing) == []
    assert metrics.utilization(nothing, np.zeros(5, bool)).fraction is None
    assert metrics.utilization(np.array([3, 0, 12]), np.array([True, True, False])).fraction == 0.5


def test_the_frequency_curve_has_the_first_and_the_last_rank():
    values = counts(3, 5000)
    curve = metrics.frequency_curve(values)
    ordered = sorted((n for n in values.tolist() if n), reverse=True)
    assert curve[0] == (1, ordered[0])
    assert curve[-1] == (len(ordered), ordered[-1])
    assert [n for _, n in curve] == [ordered[rank - 1] for rank, _ in curve]
    assert len(curve) < 120
    assert metrics.frequency_curve(np.array([4])) == [(1, 4)]


def test_costs_of_known_models():
    gpt2 = DEFAULT_SHAPES["GPT-2 small"]
    assert parameters(50_257, gpt2) == (38_597_376, 0)
    assert cache_bytes_per_token(gpt2) == 36_864
    assert parameters(128_256, DEFAULT_SHAPES["Llama 3 8B"]) == (525_336_576, 525_336_576)
    assert cache_bytes_per_token(DEFAULT_SHAPES["Llama 3 8B"]) == 131_072
    assert attention_ratio(158, 100) == pytest.approx(2.4964)  # 58 % more tokens, 2.5 times the work
    whole = GroupMetrics(documents=4, tokens=300, words=200, fertility=1.5, tokens_per_document=75)
    found = cost(1_000, gpt2, whole, GroupMetrics(tokens=150))
    assert found.cache_bytes_per_document == 75 * 36_864
    assert found.cache_bytes_per_thousand_words == 1_500 * 36_864
    assert found.price_per_million_words == 1.5
    assert found.attention_ratio == 4
    empty = cost(1_000, gpt2, GroupMetrics(), GroupMetrics())
    assert empty.attention_ratio is empty.price_per_million_words is empty.cache_bytes_per_document is None


def test_keys_of_parallel_texts():
    hashes = key_hashes(["a:1:en", "a:1:de", "a:2:en", "plain", None, ""], "(.+):[^:]*")
    assert hashes[0] == hashes[1] != hashes[2]
    assert hashes[3:].tolist() == [0, 0, 0]
    whole = key_hashes(["x", "x", "y", None], None)
    assert whole[0] == whole[1] != whole[2]
    assert whole[3] == 0


def test_of_too_many_parallel_texts_the_same_are_kept_in_any_parts():
    rng = np.random.default_rng(1)
    keys = rng.integers(1, 1 << 63, 4_000, dtype=np.uint64)
    codes, values = rng.integers(0, 3, 4_000), rng.integers(1, 50, 4_000)
    groups = ["de", "en", "fr"]

    def tallied(parts: int) -> ParallelCounts:
        merged = ParallelCounts(most=500)
        for part in np.array_split(rng.permutation(4_000), parts):
            own = ParallelCounts(most=500)
            own.add(groups, codes[part], keys[part], values[part])
            header, arrays = own.to_arrays()
            merged.merge(ParallelCounts.from_arrays(header, arrays))
        return merged

    one, many = tallied(1), tallied(9)
    assert one.below == many.below == int(np.sort(keys)[500])
    for group in groups:
        assert all(np.array_equal(a, b) for a, b in zip(one.rows[group], many.rows[group], strict=True))
    assert sum(len(keys) for keys, _, _ in one.rows.values()) == 500


def test_the_pivot_is_english_or_has_most_texts():
    def counted(**texts: int) -> ParallelCounts:
        found = ParallelCounts()
        for group, n in texts.items():
            found.add([group], np.zeros(n, int), np.arange(1, n + 1, dtype=np.uint64), np.full(n, 3))
        return found

    assert choose_pivot(counted(de=9, en=2), None) == "en"
    assert choose_pivot(counted(de=3, fr=9, it=9), None) == "fr"
    assert choose_pivot(counted(de=3, fr=9), "de") == "de"
    assert choose_pivot(counted(de=3, fr=9), "xx") is None
    assert choose_pivot(counted(de=3), None) is None
    assert choose_pivot(ParallelCounts(), None) is None
    assert premiums(counted(de=3, fr=9), "de") == {"de": (3, 1.0), "fr": (3, 1.0)}
