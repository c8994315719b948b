"""Small LLVM intrinsics and hashing shared by the Numba kernels.

Kernels see documents as one contiguous uint8 array. ``load64`` reads eight bytes at any alignment without a bounds
check, so callers go through ``load_key``, which never reads past the end of the array.
"""

import llvmlite.ir as ir
import numpy as np
from numba import types
from numba.extending import intrinsic

from shardpiece.kernel_cache import kernel

_I64 = ir.IntType(64)

# Odd 64-bit constants with well-mixed bits: the golden ratio and two primes of the xxHash family (Collet 2012).
MIX_1 = np.uint64(0x9E3779B97F4A7C15)
MIX_2 = np.uint64(0xC2B2AE3D27D4EB4F)
MIX_3 = np.uint64(0x165667B19E3779F9)
_SHIFT_32 = np.uint64(32)
_SHIFT_29 = np.uint64(29)


@intrinsic
def load64(typing_context, array, index):
    """Little-endian uint64 at byte ``index`` of a uint8 array; the caller guarantees index + 8 <= len(array)."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), _I64.as_pointer())
        value = builder.load(pointer)
        value.align = 1
        return value

    return types.uint64(array, types.int64), generate


@intrinsic
def trailing_zeros(typing_context, value):
    """Number of zero bits below the lowest one of a uint64, 64 for zero."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@kernel
def load_key(data, position, n):
    """The ``n`` <= 8 bytes at ``position`` as a little-endian uint64, zero-extended; never reads out of bounds."""
    if position + 8 <= len(data):
        value = load64(data, position)
        if n < 8:
            value &= (np.uint64(1) << np.uint64(8 * n)) - np.uint64(1)
        return value
    value = np.uint64(0)
    for i in range(n):
        value |= np.uint64(data[position + i]) << np.uint64(8 * i)
    return value


@kernel
def hash_bytes(data, start, end, seed):
    """64-bit hash of data[start:end]; the same on every machine and in every run."""
    h = (np.uint64(end - start) + seed) * MIX_3
    position = start
    while position + 8 <= end:
        h = (h ^ load64(data, position)) * MIX_1
        h ^= h >> _SHIFT_32
        position += 8
    if position < end:
        h = (h ^ load_key(data, position, end - position)) * MIX_2
        h ^= h >> _SHIFT_29
    h *= MIX_1
    return h ^ (h >> _SHIFT_32)


@kernel
def same_bytes(a, a_start, b, b_start, n):
    """Whether n bytes at a[a_start:] and b[b_start:] are equal."""
    i = 0
    while i + 8 <= n:
        if load64(a, a_start + i) != load64(b, b_start + i):
            return False
        i += 8
    return i == n or load_key(a, a_start + i, n - i) == load_key(b, b_start + i, n - i)
