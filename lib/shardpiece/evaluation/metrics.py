"""Figures from sums. Every function gives None where a figure is not defined, never NaN; see DEFINITIONS for the formulas."""

import numpy as np

from shardpiece.evaluation.schema import GroupMetrics, Renyi, Utilization

ALPHA = 2.5
_CURVE_POINTS_PER_DECADE = 24


def ratio(above: float, under: float) -> float | None:
    return float(above / under) if under else None


def renyi_entropy(counts: np.ndarray, alpha: float = ALPHA) -> float | None:
    """The Rényi entropy of order ``alpha`` of the tokens' relative frequencies, in nats: log(Σ pᵢ^α) / (1 − α), Shannon's for
    α = 1 (Rényi 1961). ``counts``: how often each token occurs, zeros allowed."""
    counts = np.asarray(counts)
    counts = counts[counts > 0]
    if not len(counts):
        return None
    p = counts / counts.sum()
    if alpha == 1:
        return float(-(p * np.log(p)).sum())
    return float(np.log((p**alpha).sum()) / (1 - alpha))


def renyi_efficiency(counts: np.ndarray, vocab_size: int, alpha: float = ALPHA) -> float | None:
    """The Rényi entropy by that of a uniform distribution over the vocabulary: H_α / log V (Zouhar et al. 2023, who find it to
    foretell translation quality best at α = 2.5). The package tokenization-scorer takes for V the number of different tokens
    that occur, unless told otherwise. None for a vocabulary of one token."""
    entropy = renyi_entropy(counts, alpha)
    if entropy is None or vocab_size < 2:
        return None
    return abs(entropy) / float(np.log(vocab_size))


def renyi(counts: np.ndarray, vocab_size: int, alpha: float = ALPHA) -> Renyi:
    return Renyi(
        alpha=alpha,
        efficiency=renyi_efficiency(counts, vocab_size, alpha),
        efficiency_of_used=renyi_efficiency(counts, int(np.count_nonzero(counts)), alpha),
    )


def gini(values: list[float]) -> float | None:
    """The Gini coefficient Σᵢ Σⱼ |xᵢ − xⱼ| / (2 n Σ x) of values that are not negative (Gini 1912; of tokenizers' costs per
    language Foroutan et al. 2025): 0 when all are equal. None for fewer than two values, or for zeros alone."""
    x = np.sort(np.asarray(values, float))
    if len(x) < 2 or not x.sum() > 0:
        return None
    n = len(x)
    # Of sorted values, Σᵢ Σⱼ |xᵢ − xⱼ| is twice Σ (2 i − n − 1) xᵢ, i from 1.
    return max(0.0, float(((2 * np.arange(1, n + 1) - n - 1) * x).sum() / (n * x.sum())))


def utilization(counts: np.ndarray, possible: np.ndarray) -> Utilization:
    """``possible``: bool [vocab_size], the tokens that text can become."""
    n, occurring = int(possible.sum()), counts[possible]
    used = int(np.count_nonzero(occurring))
    return Utilization(
        possible=n,
        used=used,
        fraction=ratio(used, n),
        at_least={least: int((occurring >= least).sum()) for least in (1, 10, 100, 1_000)},
    )


def frequency_curve(counts: np.ndarray) -> list[tuple[int, int]]:
    """(rank from 1, count) of the tokens that occur, the most frequent first, at the first ranks and then at some in every
    power of ten; the last one too."""
    ordered = np.sort(counts[counts > 0])[::-1]
    if not len(ordered):
        return []
    decades = np.log10(len(ordered))
    ranks = np.unique(np.rint(10 ** np.arange(0, decades, 1 / _CURVE_POINTS_PER_DECADE)).astype(np.int64))
    ranks = np.unique(np.append(ranks[ranks <= len(ordered)], len(ordered)))
    return [(int(rank), int(ordered[rank - 1])) for rank in ranks]


def group_metrics(
    text: dict[str, int],
    tokens: dict[str, int],
    ids: np.ndarray,
    counts: np.ndarray,
    *,
    vocab_size: int,
    unk_id: int | None,
    white_space: np.ndarray,
    single_token_common_words: float | None,
) -> GroupMetrics:
    """The figures of a group. ``text``, ``tokens``: sums, named as in TEXT_SUMS and TOKEN_SUMS; ``ids``, ``counts``: of its
    tokens; ``white_space``: int64 [vocab_size], the bytes of tokens that are white space alone, 0 for others.

    fertility = tokens / words of the text, white space and punctuation among the tokens (Ács 2019; Rust et al. 2021);
    continued_words = words that become more than one token / words (the same, per running word); see ``words`` for both."""
    n = tokens["tokens"]
    bytes_of = white_space[ids]
    blank = int(counts[bytes_of > 0].sum())
    unknown = 0 if unk_id is None else int(counts[ids == unk_id].sum())
    return GroupMetrics(
        **text,
        tokens=n,
        tokens_per_document=ratio(n, text["documents"]),
        bytes_per_token=ratio(text["bytes"], n),
        characters_per_token=ratio(text["characters"], n),
        fertility=ratio(n, text["words"]),
        continued_words=ratio(tokens["continued_words"], text["words"]),
        single_token_common_words=single_token_common_words,
        unk_rate=ratio(unknown, n),
        round_trip_rate=ratio(tokens["round_trips"], tokens["tried"]),
        renyi_efficiency=renyi_efficiency(counts, vocab_size),
        distinct_tokens=len(ids),
        white_space_tokens=ratio(blank, n),
        white_space_bytes_per_token=ratio(int((counts * bytes_of).sum()), blank),
    )
