"""Small LLVM intrinsics and hashing shared by the Numba kernels.

Kernels see documents as one contiguous uint8 array, which may be a slice of somebody's buffer: nothing may be read past
its end. Loads and stores here check no bounds and know no negative indices; each says what its caller guarantees.
"""

import llvmlite.ir as ir
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shardpiece.kernel_cache import inlined_kernel, plain_kernel

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_VECTOR, _VECTOR_16 = ir.VectorType(_I8, 64), ir.VectorType(_I8, 16)

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


@intrinsic
def leading_zeros(typing_context, value):
    """Number of zero bits above the highest one of a uint64, 64 for zero."""

    def generate(context, builder, signature, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def bit_count(typing_context, value):
    """Number of one bits of a uint64."""

    def generate(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


@intrinsic
def get(typing_context, array, index):
    """array[index] of a one-dimensional contiguous array; the caller guarantees 0 <= index < len(array)."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load(builder.gep(data, [args[1]]))

    return array.dtype(array, types.int64), generate


@intrinsic
def get_sum(typing_context, array, i, j):
    """array[i + j] as ``get``, where i is known before j: the processor adds j as it loads."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load(builder.gep(builder.gep(data, [args[1]]), [args[2]]))

    return array.dtype(array, types.int64, types.int64), generate


@intrinsic
def put(typing_context, array, index, value):
    """array[index] = value, as ``get``."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        builder.store(args[2], builder.gep(data, [args[1]]))
        return context.get_dummy_value()

    return types.void(array, types.int64, array.dtype), generate


@intrinsic
def store64(typing_context, array, index, value):
    """The elements of an array from ``index`` on, two of int32 or eight of uint8, from a uint64, the lowest bytes first; the
    caller guarantees that the array has them."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), _I64.as_pointer())
        builder.store(args[2], pointer).align = 1
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), generate


@intrinsic
def copy64(typing_context, target, j, source, i):
    """Copy 64 bytes from the uint8 array ``source`` at i to ``target`` at j; the caller guarantees that both have them."""

    def generate(context, builder, signature, args):
        into, at, array, index = args
        target_data = context.make_array(signature.args[0])(context, builder, into).data
        source_data = context.make_array(signature.args[2])(context, builder, array).data
        value = builder.load(builder.bitcast(builder.gep(source_data, [index]), _VECTOR.as_pointer()))
        value.align = 1
        builder.store(value, builder.bitcast(builder.gep(target_data, [at]), _VECTOR.as_pointer())).align = 1
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64), generate


@intrinsic
def copy_4(typing_context, target, j, source, i):
    """Copy four elements of int32 arrays, source[i:i + 4] to target[j:j + 4]; the caller guarantees that both have them."""

    def generate(context, builder, signature, args):
        into, at, array, index = args
        target_data = context.make_array(signature.args[0])(context, builder, into).data
        source_data = context.make_array(signature.args[2])(context, builder, array).data
        value = builder.load(builder.bitcast(builder.gep(source_data, [index]), _VECTOR_16.as_pointer()))
        value.align = 4
        builder.store(value, builder.bitcast(builder.gep(target_data, [at]), _VECTOR_16.as_pointer())).align = 4
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64), generate


@intrinsic
def prefetch(typing_context, array, index):
    """Ask for the cache line of array[index] of a one-dimensional contiguous array; any index is allowed."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), _I8.as_pointer())
        signature_ = ir.FunctionType(ir.VoidType(), [pointer.type, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, signature_, "llvm.prefetch.p0")
        builder.call(function, [pointer, _I32(0), _I32(3), _I32(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def least_of_16(typing_context, array, index):
    """The least of 16 uint32 elements from ``index`` on; the caller guarantees 0 <= index and index + 16 <= len(array)."""

    def generate(context, builder, signature, args):
        vector = ir.VectorType(_I32, 16)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        values = builder.load(builder.bitcast(builder.gep(data, [args[1]]), vector.as_pointer()))
        values.align = 4
        signature_ = ir.FunctionType(_I32, [vector])
        function = cgutils.get_or_insert_function(builder.module, signature_, "llvm.vector.reduce.umin.v16i32")
        return builder.call(function, [values])

    return types.uint32(array, types.int64), generate


@intrinsic
def matches_of_8(typing_context, array, index, shift, value):
    """Bit k of the uint64 says whether array[index + k] >> shift == value, for 8 uint64 elements; the caller guarantees
    0 <= index and index + 8 <= len(array)."""

    def generate(context, builder, signature, args):
        vector = ir.VectorType(_I64, 8)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        values = builder.load(builder.bitcast(builder.gep(data, [args[1]]), vector.as_pointer()))
        values.align = 8
        undefined = ir.Constant(vector, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(_I32, 8), [0] * 8)
        shift, value = (
            builder.shuffle_vector(builder.insert_element(undefined, arg, _I32(0)), undefined, zeros)
            for arg in args[2:]
        )
        same = builder.icmp_unsigned("==", builder.lshr(values, shift), value)
        return builder.zext(builder.bitcast(same, _I8), _I64)

    return types.uint64(array, types.int64, types.uint64, types.uint64), generate


@intrinsic
def mask_of_range(typing_context, array, index, fold, first, count):
    """Bit k of the uint64 says whether (byte | fold) - first < count, modulo 256, for the uint8 at index + k.

    One vector comparison of 64 bytes on any processor that has vectors. The caller guarantees
    0 <= index <= len(array) - 64.
    """

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        values = builder.load(builder.bitcast(builder.gep(data, [args[1]]), _VECTOR.as_pointer()))
        values.align = 1
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(_I32, 64), [0] * 64)
        fold, first, count = (
            builder.shuffle_vector(builder.insert_element(undefined, arg, _I32(0)), undefined, zeros)
            for arg in args[2:]
        )
        inside = builder.icmp_unsigned("<", builder.sub(builder.or_(values, fold), first), count)
        return builder.bitcast(inside, _I64)

    return types.uint64(array, types.int64, types.uint8, types.uint8, types.uint8), generate


@intrinsic
def copy_folded_16(typing_context, source, source_index, target, target_index, letters):
    """Sixteen bytes of a uint8 array to another, the first ``letters`` (uint8) of A to Z made small; the caller guarantees
    that both have them."""

    def generate(context, builder, signature, args):
        def place(i):
            data = context.make_array(signature.args[i])(context, builder, args[i]).data
            return builder.bitcast(builder.gep(data, [args[i + 1]]), _VECTOR_16.as_pointer())

        def splat(value):
            return ir.Constant(_VECTOR_16, [value] * 16)

        values = builder.load(place(0))
        values.align = 1
        undefined = ir.Constant(_VECTOR_16, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(_I32, 16), [0] * 16)
        count = builder.shuffle_vector(builder.insert_element(undefined, args[4], _I32(0)), undefined, zeros)
        capital = builder.icmp_unsigned("<", builder.sub(values, splat(ord("A"))), count)
        values = builder.or_(values, builder.select(capital, splat(0x20), splat(0)))
        builder.store(values, place(2)).align = 1
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64, types.uint8), generate


@inlined_kernel
def load_key(data, position, n):
    """The ``n`` <= 8 bytes at ``position`` as a little-endian uint64, zero-extended; never reads out of bounds."""
    if position + 8 <= len(data):
        value = load64(data, position)
        if n < 8:
            value &= (np.uint64(1) << np.uint64(8 * n)) - np.uint64(1)
        return value
    return load_last(data, position, n)


@plain_kernel
def load_last(data, position, n):
    """``load_key`` a byte at a time."""
    value = np.uint64(0)
    for i in range(n):
        value |= np.uint64(data[position + i]) << np.uint64(8 * i)
    return value


@plain_kernel
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


@plain_kernel
def same_bytes(a, a_start, b, b_start, n):
    """Whether n bytes at a[a_start:] and b[b_start:] are equal."""
    i = 0
    while i + 8 <= n:
        if load64(a, a_start + i) != load64(b, b_start + i):
            return False
        i += 8
    return i == n or load_key(a, a_start + i, n - i) == load_key(b, b_start + i, n - i)
