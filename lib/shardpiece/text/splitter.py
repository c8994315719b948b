"""A compiled pattern made ready for the split kernel: its tables, and the fast paths derived from them."""

import numpy as np

from shardpiece.errors import DocumentError
from shardpiece.text import split_kernels as k
from shardpiece.text.dfa import DFA
from shardpiece.text.documents import Documents

# Steps of the automaton that a document may take beyond a hundred per byte: some ten seconds. Published patterns take
# about one per byte; a pattern that reads far ahead at every position and then fails takes their square.
WORK_PER_DOCUMENT = 2_000_000_000

_LOWER = frozenset(range(ord("a"), ord("z") + 1))
_UPPER = frozenset(range(ord("A"), ord("Z") + 1))
# Letters that a state may loop over, as (fold, first, last): byte | fold lies between first and last.
_RANGES = {
    _LOWER | _UPPER: (0x20, ord("a"), ord("z")),
    _LOWER: (0, ord("a"), ord("z")),
    _UPPER: (0, ord("A"), ord("Z")),
}
_EVERY_BYTE = 0x0101010101010101


class Splitter:
    """Splits documents by a DFA."""

    def __init__(self, dfa: DFA):
        states = len(dfa.transitions)
        ascii_columns = dfa.class_of[:128]
        step = np.full((states, 256), k.OTHER, np.uint16)
        step[:, :128] = dfa.transitions[:, ascii_columns]
        loops = np.zeros((states, 256), np.uint8)
        loops[:, :128] = step[:, :128] == (np.arange(states, dtype=np.uint16) << 1 | 1)[:, None]
        ranges = np.zeros((states, 3), np.uint64)
        for state in range(states):
            letters = frozenset(np.flatnonzero(loops[state]).tolist())
            if letters in _RANGES:
                fold, first, last = _RANGES[letters]
                ranges[state] = [fold * _EVERY_BYTE, (0x80 - first) * _EVERY_BYTE, (0x7F - last) * _EVERY_BYTE]
        # Bit 1 of a state's entry for NUL says that it has loops at all.
        loops[:, 0] |= loops.any(axis=1).astype(np.uint8) << 1
        self._tables = (dfa.class_of, step.ravel(), np.ascontiguousarray(dfa.transitions), loops.ravel(), ranges)

    def split(self, documents: Documents) -> tuple[np.ndarray, np.ndarray]:
        """(ends int64 of all words, document_ends int64: words up to and including each document). Raises
        DocumentError for a document that takes too many steps."""
        document_ends = np.empty(len(documents), np.int64)
        state = np.zeros(k.STATE_SIZE, np.int64)
        state[k.STATE_POSITION] = state[k.STATE_WORD_START] = documents.offsets[0]
        ends = np.empty(documents.size // 3 + 64, np.int64)
        while True:
            status = k.split_documents(
                documents.data, documents.offsets, *self._tables, WORK_PER_DOCUMENT, ends, document_ends, state
            )
            if status == k.DONE:
                return ends[: state[k.STATE_WORDS]], document_ends
            if status == k.TOO_MUCH_WORK:
                d = int(state[k.STATE_DOCUMENT])
                size = int(documents.offsets[d + 1] - documents.offsets[d])
                raise DocumentError(
                    d,
                    f"the pre-tokenizer pattern took too many steps on this document of {size:,} bytes; "
                    f"simplify the pattern or leave the document out",
                )
            ends = np.concatenate([ends, np.empty(len(ends) + 64, np.int64)])
