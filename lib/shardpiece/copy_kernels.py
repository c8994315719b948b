"""LLVM intrinsics that move several bytes at once, at any place in arrays of any type; see ``intrinsics``: places count
bytes, nothing is checked, and each says what its caller guarantees."""

import llvmlite.ir as ir
from numba import types
from numba.extending import intrinsic

_I8, _I64 = ir.IntType(8), ir.IntType(64)
_VECTOR = ir.VectorType(_I8, 16)


def _pointer(context, builder, array_type, array, byte, to):
    data = context.make_array(array_type)(context, builder, array).data
    start = builder.bitcast(data, _I8.as_pointer())
    return builder.bitcast(builder.gep(start, [byte]), to.as_pointer())


def _splat(value: int):
    return ir.Constant(_VECTOR, [value] * 16)


@intrinsic
def load_8(typing_context, array, byte):
    """The eight bytes at ``byte`` as a little-endian uint64; the caller guarantees byte + 8 <= array.nbytes."""

    def generate(context, builder, signature, args):
        value = builder.load(_pointer(context, builder, signature.args[0], args[0], args[1], _I64))
        value.align = 1
        return value

    return types.uint64(array, types.int64), generate


@intrinsic
def store_8(typing_context, array, byte, value):
    """The reverse of ``load_8``."""

    def generate(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1], _I64)
        builder.store(args[2], pointer).align = 1
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), generate


@intrinsic
def copy_16(typing_context, source, source_byte, target, target_byte):
    """Sixteen bytes from one array to another; the caller guarantees that both have them."""

    def generate(context, builder, signature, args):
        value = builder.load(_pointer(context, builder, signature.args[0], args[0], args[1], _VECTOR))
        value.align = 1
        pointer = _pointer(context, builder, signature.args[2], args[2], args[3], _VECTOR)
        builder.store(value, pointer).align = 1
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64), generate


@intrinsic
def copy_folded_16(typing_context, source, source_byte, target, target_byte, letters):
    """``copy_16`` with the first ``letters`` (uint8) of A to Z made small."""

    def generate(context, builder, signature, args):
        value = builder.load(_pointer(context, builder, signature.args[0], args[0], args[1], _VECTOR))
        value.align = 1
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), 16), [0] * 16)
        count = builder.shuffle_vector(builder.insert_element(undefined, args[4], ir.IntType(32)(0)), undefined, zeros)
        capital = builder.icmp_unsigned("<", builder.sub(value, _splat(ord("A"))), count)
        value = builder.or_(value, builder.select(capital, _splat(0x20), _splat(0)))
        pointer = _pointer(context, builder, signature.args[2], args[2], args[3], _VECTOR)
        builder.store(value, pointer).align = 1
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64, types.uint8), generate
