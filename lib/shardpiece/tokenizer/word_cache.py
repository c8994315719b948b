"""The memory of the word cache, see ``word_cache_kernels``."""

import numpy as np

from shardpiece.tokenizer import word_cache_kernels as k

_LINE = 64


class WordCache:
    """Tokens of words in about ``cache_bytes``: half for short words, a quarter for the entries of longer ones, an eighth each
    for their bytes and tokens. One per thread."""

    def __init__(self, cache_bytes: int = 64 << 20):
        # Every ring holds the longest word: as many tokens as it has bytes.
        unit = 1 << max((4 * k.LONG).bit_length() - 1, (cache_bytes // 8).bit_length() - 1)
        self.short_table = cache_lines(4 * unit)
        self.long_table = cache_lines(2 * unit)
        self.ring_bytes = np.zeros(unit, np.uint8)
        self.ring_tokens = np.zeros(unit // 4, np.int32)
        self.state = np.zeros(k.STATE_SIZE, np.int64)


def cache_lines(size: int) -> np.ndarray:
    """Zeros, uint64, of ``size`` bytes, from the beginning of a cache line."""
    array = np.zeros(size // 8 + 8, np.uint64)
    skip = -array.ctypes.data % _LINE // 8
    return array[skip : skip + size // 8]
