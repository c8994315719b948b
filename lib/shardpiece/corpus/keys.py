"""Hashes of document ids: what sampling, the validation split, mixtures and shuffles go by.

A document's hash is a function of a purpose, a seed and the document's id, so that it does not depend on where the document
lies, on what else the corpus holds, or on the cluster. Purposes have names of their own ("validation", "mixture", ..): what
one of them chooses says nothing about what another one does.
"""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import xxhash

_ALL = 1 << 64


def document_hash(seed: int, ids: pa.StringArray | pa.LargeStringArray, purpose: str) -> np.ndarray:
    """uint64 [n]: the XXH3-64 (Collet 2019) of purpose, NUL, the seed in decimal, NUL, and the bytes of each id.

    The caller sees to it that no id is null, and names file and row of one that is: here that is a ValueError.
    """
    if ids.null_count:
        raise ValueError("a null is no document id")
    front = f"{purpose}\0{seed}\0".encode()
    digest = xxhash.xxh3_64_intdigest
    kind = pa.large_binary() if pa.types.is_large_string(ids.type) else pa.binary()
    raws = ids.view(kind).to_pylist()
    return np.fromiter((digest(front + raw) for raw in raws), np.uint64, len(raws))


def fraction(hashes: np.ndarray) -> np.ndarray:
    """float64 [n] in [0, 1): the upper 53 bits of the hashes."""
    return (hashes >> np.uint64(11)) * 2.0**-53


def threshold(share: float | Fraction) -> int:
    """How many of the 2^64 hashes make up ``share`` of them, rounded down: those below this number are chosen. No rounding
    of floats comes in, so that a greater share chooses all that a smaller one does, and 0.25 exactly a quarter."""
    return min(_ALL, max(0, int(Fraction(share) * _ALL)))


def below(hashes: np.ndarray, share: float | Fraction) -> np.ndarray:
    """bool [n]: which hashes are among the smallest ``share`` of all there can be."""
    bound = threshold(share)
    if bound == _ALL:
        return np.ones(len(hashes), np.bool_)
    return hashes < np.uint64(bound)
