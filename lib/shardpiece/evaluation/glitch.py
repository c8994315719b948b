"""Tokens that a model may hardly learn: unreachable ones, parts of characters, and those that the corpus lacks.

After Land and Bartolo 2024 ("Fishing for Magikarp"), as far as a tokenizer alone and the counts of a corpus tell.
"""

import numpy as np

from shardpiece.evaluation.schema import Glitches, GlitchReason, GlitchToken
from shardpiece.evaluation.vocabulary import Said
from shardpiece.text.documents import Documents
from shardpiece.tokenizer.pieces import readable

LEAST_EXPECTED = 10
FAR_BELOW = 10
_REASONS: tuple[GlitchReason, ...] = ("unreachable", "partial_utf8", "unused", "rare")
# Text before and after a token's own, as others put it: the start of a text, a line, a word of several kinds, and its end.
_SURROUNDINGS = (("", ""), ("\n", ""), ("a", ""), ("", "a"), ("\n", "a"), ("a", "a"), ("q", ""), ("1", ""), (".", ""),
                 ("é", ""), ("中", ""), (" x", ""), ("\n ", ""))  # fmt: skip
_NEIGHBOURS = 500


def unreachable(said: Said, counts: np.ndarray) -> np.ndarray:
    """bool [vocab_size]: ordinary tokens of whole characters for which encode(decode([t])) has no t, in none of several
    surroundings, and that the text (``counts``) has not either; and single bytes that no UTF-8 has."""
    tokenizer = said.tokenizer
    open_ids = np.flatnonzero(said.ordinary & (counts == 0) & ~partial(said))
    open_ids = np.array([i for i in open_ids.tolist() if said.texts[i]], np.int64)
    for before, after in _SURROUNDINGS:
        if not len(open_ids):
            break
        texts = [before + said.texts[i].decode(errors="replace") + after for i in open_ids.tolist()]
        tokens, offsets = tokenizer.encode_documents(Documents.from_strings(texts))
        own = tokens == np.repeat(open_ids, np.diff(offsets))
        found = np.zeros(len(open_ids), bool)
        found[np.repeat(np.arange(len(open_ids)), np.diff(offsets))[own]] = True
        open_ids = open_ids[~found]
    result = np.zeros(len(counts), bool)
    result[open_ids] = True
    never = [i for i, raw in enumerate(said.texts) if len(raw) == 1 and (raw[0] in (0xC0, 0xC1) or raw[0] >= 0xF5)]
    result[never] = True
    return result & said.ordinary & (counts == 0)


def partial(said: Said) -> np.ndarray:
    """bool [vocab_size]: ordinary tokens that are no valid UTF-8."""
    return said.ordinary & said.of("partial characters", "single bytes")


def expected_counts(counts: np.ndarray, training: np.ndarray | None, ordinary: np.ndarray) -> np.ndarray:
    """float [vocab_size]: how often each token should occur. With ``training``, how often it occurs in the training table:
    that count, scaled by the tokens of both; else the median count of some 1,001 ordinary tokens around it by id, since ids
    of a BPE are in the order of the frequency they had (all others nan)."""
    if training is not None:
        whole = training.sum()
        return training * (counts.sum() / whole) if whole else np.full(len(counts), np.nan)
    expected = np.full(len(counts), np.nan)
    ids = np.flatnonzero(ordinary)
    if len(ids):
        window = min(2 * _NEIGHBOURS + 1, len(ids))
        medians = np.median(
            np.lib.stride_tricks.sliding_window_view(counts[ids], window)[:: max(1, window // 20)], axis=1
        )
        places = np.minimum(np.maximum(np.arange(len(ids)) - window // 2, 0) // max(1, window // 20), len(medians) - 1)
        expected[ids] = medians[places]
    return expected


def glitches(said: Said, counts: np.ndarray, training: np.ndarray | None, most: int) -> Glitches:
    """``counts``: int64 [vocab_size], of the text; ``training``: the same of the training table, where that is at hand.
    ``most``: how many candidates to list, unreachable ones first, then unused and rare ones, those first that are expected most, and the rest."""
    expected = expected_counts(counts, training, said.ordinary)
    lost, parts = unreachable(said, counts), said.of("partial characters")
    unused = said.ordinary & (counts == 0)
    known = np.nan_to_num(expected)
    rare = said.ordinary & (counts > 0) & (known >= LEAST_EXPECTED) & (counts * FAR_BELOW < known)
    if training is None:
        rare[:] = False  # a guess by neighbours puts candidates in order, and accuses none
    masks = dict(zip(_REASONS, (lost, parts & said.ordinary, unused, rare), strict=True))
    listed = np.flatnonzero(lost | unused | rare | masks["partial_utf8"])
    order = np.lexsort((listed, -known[listed], ~(unused | rare)[listed], ~lost[listed]))
    candidates = [
        GlitchToken(
            id=i,
            text=readable(said.texts[i]),
            bytes=said.texts[i].hex(),
            reasons=[reason for reason in _REASONS if masks[reason][i]],
            count=int(counts[i]),
            training_count=None if training is None else int(training[i]),
            expected=None if np.isnan(expected[i]) else round(float(expected[i]), 3),
        )
        for i in listed[order][:most].tolist()
    ]
    return Glitches(counts={reason: int(mask.sum()) for reason, mask in masks.items()}, candidates=candidates)
