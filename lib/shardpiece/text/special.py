"""Special tokens in training text: boundaries that are not counted."""

import re

import numpy as np

from shardpiece.text.documents import Documents


class SpecialTokenCutter:
    """Cuts documents at every place that spells a special token, longest first, in one pass over the bytes."""

    def __init__(self, tokens: tuple[str, ...] | list[str]):
        spelled = sorted((token.encode() for token in tokens), key=lambda token: (-len(token), token))
        self._pattern = re.compile(b"|".join(map(re.escape, spelled))) if spelled else None

    def cut(self, documents: Documents) -> tuple[Documents, np.ndarray, int]:
        """(pieces without the tokens, int64 index of the document each piece is of, number of tokens removed)."""
        whole = np.arange(len(documents))
        if self._pattern is None:
            return documents, whole, 0
        offsets = documents.offsets.tolist()
        if not self._pattern.search(documents.data, offsets[0], offsets[-1]):
            return documents, whole, 0
        pieces: list[np.ndarray] = []
        owners: list[int] = []
        for d in range(len(documents)):
            start = offsets[d]
            for match in self._pattern.finditer(documents.data, start, offsets[d + 1]):
                pieces.append(documents.data[start : match.start()])
                owners.append(d)
                start = match.end()
            pieces.append(documents.data[start : offsets[d + 1]])
            owners.append(d)
        removed = len(pieces) - len(documents)
        starts = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum([len(piece) for piece in pieces], out=starts[1:])
        starts.flags.writeable = False
        data = np.frombuffer(np.concatenate(pieces).tobytes(), np.uint8)
        return Documents(data, starts), np.array(owners, np.int64), removed
