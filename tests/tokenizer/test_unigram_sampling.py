"""Sampled segmentations of Unigram models against brute force."""

import itertools
from collections import Counter

import numpy as np
import pytest

from shardpiece.tokenizer.sampling import Sampling, document_keys
from tests.tokenizer.test_unigram import best_scores, encode, model_of, with_bytes, words_of

SCORES = {"a": -2.0, "b": -2.5, "c": -3.0, "ab": -3.5, "bc": -4.0, "abc": -6.0, "▁": -1.0, "▁a": -2.5, "ca": -4.1}


def sample(model, sampling: Sampling, *words: str, ids=None) -> list[list[int]]:
    keys = document_keys(ids if ids is not None else [str(i) for i in range(len(words))], sampling)
    tokens, offsets = model.encoder().encode_sampled(words_of(*words), sampling, keys)
    return [tokens[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())]


def probabilities(word: str, model, alpha: float, nbest: int = -1) -> dict[tuple, float]:
    """Probability of each sequence of ids, by enumeration."""
    ids = {piece: i for i, piece in enumerate(SCORES, 1)}
    paths = sorted(best_scores(word, SCORES, model.unknown_score).items(), key=lambda item: -item[1])
    kept = paths if nbest < 1 else paths[:nbest]
    weights = np.exp(alpha * np.array([score for _, score in kept]))
    result: dict[tuple, float] = {}
    for (path, _), weight in zip(kept, weights / weights.sum(), strict=True):
        spelled = tuple(ids.get(piece, 0) for piece in path)
        result[spelled] = result.get(spelled, 0.0) + float(weight)
    return result


@pytest.mark.parametrize(
    ("word", "alpha", "nbest"),
    [
        ("abcab", 0.2, -1),
        ("abcab", 1.0, -1),
        ("▁abxcab", 0.5, -1),
        ("abcab", 0.3, 4),
        ("▁abcabc", 0.1, 7),
        ("ab", 0.5, 64),
    ],
)
def test_segmentations_are_drawn_by_their_probability(word, alpha, nbest):
    model, draws = model_of(SCORES), 40_000
    drawn = Counter(map(tuple, sample(model, Sampling(alpha=alpha, nbest=nbest), *[word] * draws)))
    expected = probabilities(word, model, alpha, nbest)
    assert set(drawn) <= set(expected)
    frequent = {path: p * draws for path, p in expected.items() if p * draws >= 5}
    chi_square = sum((drawn[path] - mean) ** 2 / mean for path, mean in frequent.items())
    freedom = len(frequent) - 1
    assert chi_square < freedom + 4.5 * np.sqrt(2 * freedom) + 8


@pytest.mark.parametrize("arithmetic", ["float64", "float32"])
def test_the_limits_are_the_best_segmentation(arithmetic):
    scores = {piece: score - 0.01 * i for i, (piece, score) in enumerate(SCORES.items())}
    model = model_of(scores, arithmetic=arithmetic)
    words = ["abcab", "▁abc▁abcaab", "xyabx", "", "cabcab" * 30]
    best = encode(model, *words)
    assert sample(model, Sampling(alpha=1e6), *words) == best
    assert sample(model, Sampling(alpha=1e6, nbest=5), *words) == best
    assert sample(model, Sampling(alpha=0.1, nbest=1), *words) == best
    assert sample(model, Sampling(), *words) == best


def test_a_document_draws_the_same_wherever_it_stands():
    model = model_of(SCORES)
    words = [f"▁abcab{'ab' * (i % 5)}▁a▁bca" for i in range(40)]
    ids = [f"doc{i}" for i in range(40)]
    for sampling in (Sampling(alpha=0.2), Sampling(alpha=0.2, nbest=6)):
        together = sample(model, sampling, *words, ids=ids)
        assert sample(model, sampling, *words[::-1], ids=ids[::-1]) == together[::-1]
        assert [sample(model, sampling, w, ids=[i])[0] for w, i in zip(words, ids, strict=True)] == together
        other = Sampling(alpha=0.2, nbest=sampling.nbest, epoch=1)
        assert sample(model, other, *words, ids=ids) != together
    text = dict(enumerate(SCORES, 1))
    assert ["".join(text[t] for t in tokens) for tokens in together] == words


def test_bytes_unknown_characters_and_long_words():
    model = with_bytes({"a": -1.0, "aa": -1.5})
    spelled = dict(enumerate(model.pieces()))
    word = "aa漢aaax"
    for tokens in sample(model, Sampling(alpha=0.1), *[word] * 20):
        assert b"".join(spelled[t] for t in tokens) == word.encode()
    long = "a" * 300_000
    [tokens] = sample(model, Sampling(alpha=0.1), long)
    assert b"".join(spelled[t] for t in tokens) == long.encode()
    assert 150_000 < len(tokens) < 300_000
    # Too long for a list of the best: the best one.
    assert sample(model, Sampling(alpha=0.1, nbest=64), long) == encode(model, long)
