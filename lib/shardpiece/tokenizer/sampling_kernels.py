"""Numba kernels that draw random numbers: splitmix64 (Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number
Generators"; the constants of ``mixed`` are Stafford's variant 13), read as a function of a key and a counter.

A stream is a key (uint64). Its next number is ``mixed(key + GAMMA)``, and ``next_key`` moves the stream on; whoever holds
the key of a document can begin the stream of any word without having drawn for the words before it.
"""

import numpy as np

from shardpiece.kernel_cache import kernel, plain_kernel

GAMMA = np.uint64(0x9E3779B97F4A7C15)

_STAFFORD_1 = np.uint64(0xBF58476D1CE4E5B9)
_STAFFORD_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_30 = np.uint64(30)
_SHIFT_27 = np.uint64(27)
_SHIFT_31 = np.uint64(31)
_SHIFT_11 = np.uint64(11)
_ONE = np.uint64(1)
_UNIT = 2.0**-53


@plain_kernel
def mixed(x):
    """A bijection of uint64 that leaves no pattern of x."""
    x = (x ^ (x >> _SHIFT_30)) * _STAFFORD_1
    x = (x ^ (x >> _SHIFT_27)) * _STAFFORD_2
    return x ^ (x >> _SHIFT_31)


@plain_kernel
def next_key(key):
    """The key of the rest of a stream, behind its first number."""
    return key + GAMMA


@plain_kernel
def uniform(key):
    """The first number of a stream as a float64 in [0, 1), a multiple of 2^-53."""
    return np.float64(mixed(key + GAMMA) >> _SHIFT_11) * _UNIT


@plain_kernel
def part_key(key, i):
    """The key of the stream of part i >= 0 (a word of a document, a piece of it): far from those of other parts."""
    return mixed(mixed(key) + (np.uint64(i) + _ONE) * GAMMA)


@kernel
def piece_keys(keys, owners):
    """uint64 [pieces]: a key for each piece of documents with ``keys`` (uint64 [documents]); ``owners`` (int64 [pieces],
    ascending) is the document each is of. The first piece of a document has the document's key."""
    out = np.empty(len(owners), np.uint64)
    number = np.int64(0)
    for p in range(len(owners)):
        number = number + 1 if p > 0 and owners[p] == owners[p - 1] else np.int64(0)
        key = keys[owners[p]]
        # Words take the streams of the parts 0, 1, 2, ... of a piece: pieces take them from the other end.
        out[p] = key if number == 0 else part_key(key, -number)
    return out
