"""BPE-dropout (Provilkov et al. 2020, "BPE-Dropout: Simple and Effective Subword Regularization"): words are merged as by
BPE, but at every step each possible merge is left out with a probability, drawn anew for every place and every step; of the
others the one of the lowest rank is made, the leftmost of equal ones. A step with nothing left ends the word.

How other programs differ from this:

- Hugging Face's tokenizers and YouTokenToMe also draw for merges in order and put those left out back when one is made, but
  draw for pairs that are no longer there as well, and then put the others back without a merge: what was left out is
  tried more often, and a dropout of 0.1 adds about half as many tokens to English as the published process does.
- subword-nmt makes in one step all places of the best merge that are left, not the first one alone.
- SentencePiece draws once for every place a pair comes up at; what is left out never returns, so a word is cut finer.
"""

import numpy as np

from shardpiece.kernel_cache import read_only
from shardpiece.text.documents import Words
from shardpiece.tokenizer import dropout_kernels as k
from shardpiece.tokenizer.bpe_tables import pair_table
from shardpiece.tokenizer.sampling import Sampling


class BPEDropout:
    """Samples segmentations with a BPEModel. Words that are tokens are not looked up as wholes (``ignore_merges``), as in
    Hugging Face's tokenizers. Time: m log m / (1 - dropout) of the symbols of a word."""

    def __init__(self, model, short: int = k.SHORT):
        """``short``: the bytes of the longest word that is merged without a heap."""
        self._tables = model.tables
        # With merges left out others come up than merging in order ever meets.
        left, right = (np.ascontiguousarray(column) for column in model.merges.T)
        self._pairs = pair_table(left, right, model.merged)
        self._short = short

    def encode(self, words: Words, sampling: Sampling, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]). ``keys``: uint64 [documents], see document_keys."""
        out = np.empty(words.size, np.int32)
        offsets = np.zeros(len(words.document_ends) + 1, np.int64)
        t = self._tables
        n = k.encode_dropped(
            read_only(words.data), read_only(words.ends), read_only(words.document_ends), words.start, read_only(keys),
            float(sampling.dropout), t.byte_id, t.pages, t.places, t.fallback, t.unk, t.flags, self._pairs, t.merged,
            self._short, out, offsets[1:],
        )  # fmt: skip
        return out[:n], offsets
