"""The merges of vocabularies that list none: tiktoken's ranks and SentencePiece's BPE pieces.

There, two neighbours merge whenever their text is a piece, the best piece first. A state of merging inside a piece of
text that no merge has crossed depends on that text alone, so where a piece comes into being it is always by the same last
merge: the one that its own text, merged alone, ends with. A list of those merges, one a piece, in order of the pieces, does
the same as the rule.
"""

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.tokenizer import piece_kernels as k
from shardpiece.tokenizer.vocabulary import Vocabulary


def score_priority(vocabulary: Vocabulary, scores: np.ndarray, merged: np.ndarray) -> np.ndarray:
    """Priorities, int64 [ids], of pieces by their scores, the highest first; -1 where ``merged`` (bool) is False.

    Equal scores mean: leftmost first, whichever piece it makes, which a list of merges says only of runs of one character
    (SentencePiece gives them all one score in some models): there a run grows from the left as long as it can, as it does
    when the longest piece goes first. Raises FormatError for other equal scores of pieces of several characters.
    """
    scores = np.asarray(scores, np.float64)
    ids = np.flatnonzero(merged)
    ids = ids[np.lexsort((vocabulary.offsets[ids] - vocabulary.offsets[ids + 1], -scores[ids]))]
    for at in np.flatnonzero(np.diff(scores[ids]) == 0).tolist():
        a, b = (vocabulary[int(ids[at + i])].decode() for i in (0, 1))
        if len(a) > 1 and len(b) > 1 and len(set(a + b)) > 1:
            raise FormatError(
                f"the pieces {a!r} ({ids[at]}) and {b!r} ({ids[at + 1]}) have one score: which merges first depends on the text"
            )
    priority = np.full(len(vocabulary), -1, np.int64)
    priority[ids] = np.arange(len(ids))
    return priority


def derive_merges(vocabulary: Vocabulary, priority: np.ndarray, characters: bool = False) -> np.ndarray:
    """int32 [m, 2]: merges in order. ``priority``: int64 [ids], the piece of the least value is made first; negative for
    pieces that no merge makes. ``characters``: whether text is merged from characters, else from bytes.

    Pieces that merging does not lead to have no merge: they are found as whole words alone, if at all. Raises FormatError
    for a piece with a character inside that is no piece.
    """
    priority = np.where(np.asarray(priority, np.int64) < 0, k.UNRANKED, priority)
    left, right = np.empty((2, len(vocabulary)), np.int32)
    lacking = k.implied_merges(
        vocabulary.data, vocabulary.offsets, vocabulary.present, vocabulary.slots, priority, characters, left, right
    )
    if lacking >= 0:
        what = "character" if characters else "byte"
        raise FormatError(
            f"the piece {vocabulary[int(lacking)]!r} ({int(lacking)}) has a {what} that is no piece itself"
        )
    made = np.flatnonzero(left >= 0)
    made = made[np.argsort(priority[made], kind="stable")]
    return np.stack([left[made], right[made]], 1)
