"""Protocol Buffers' wire format, as much of it as model files need: fields in, fields out.

https://protobuf.dev/programming-guides/encoding: a message is a sequence of fields, each a varint ``number << 3 | kind``
and a value, whose size the kind tells.
"""

from collections.abc import Iterator

from shardpiece.errors import FormatError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def fields(message: bytes) -> Iterator[tuple[int, int, int | bytes, bytes]]:
    """(number, kind, value, the whole field as it stands there), in order. A varint is a number below 2^64, any other
    value bytes. Raises FormatError where the message breaks off or is none."""
    at, end = 0, len(message)
    while at < end:
        start = at
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise FormatError(f"not a protobuf message (field number {number} at byte {start})")
        value: int | bytes
        if kind == VARINT:
            value, at = _varint(message, at)
        else:
            if kind == BYTES:
                size, at = _varint(message, at)
            elif kind in (FIXED32, FIXED64):
                size = 4 if kind == FIXED32 else 8
            else:
                raise FormatError(f"not a protobuf message (kind {kind} of field {number} at byte {start})")
            if size > end - at:
                raise FormatError(f"the message breaks off (field {number} at byte {start} has {size:,} bytes)")
            value = message[at : at + size]
            at += size
        yield number, kind, value, message[start:at]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in message[at : at + 10]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise FormatError(f"not a protobuf message, or it breaks off (a number that does not end at byte {at})")


def varint(number: int, value: int) -> bytes:
    """A field with a whole number; negative ones as 64-bit two's complement."""
    return _number(number << 3 | VARINT) + _number(value & 0xFFFF_FFFF_FFFF_FFFF)


def delimited(number: int, value: bytes) -> bytes:
    """A field with bytes, a text or another message."""
    return _number(number << 3 | BYTES) + _number(len(value)) + value


def fixed32(number: int, value: bytes) -> bytes:
    """A field with four bytes, such as a float."""
    return _number(number << 3 | FIXED32) + value


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
