"""Unaligned little-endian loads, stores and copies for kernels, without index checks.

numba's own indexing tests every index for negativity, which keeps LLVM from joining byte reads into one load; that
costs codecs a factor of two to five. Arrays are one-dimensional, contiguous and of ``uint8``. **The caller checks the
bounds**: the scan of the log compares with the event's or the buffer's end before it reads; a codec reads only inside a
cell, whose bounds the walk has checked, after it has checked the cell's length. Only little-endian CPUs are supported,
as by every build of numba on the platforms of Spark.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["copy", "is_utf8", "put_utf8", "same_bytes", "store8", "u8", "u16", "u32", "u64"]


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _loader(bits: int, name: str, result: Any) -> Any:
    def load(typingctx: Any, array: Any, index: Any) -> Any:
        del typingctx
        signature = result(array, types.int64)
        del index

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            value = builder.load(builder.bitcast(pointer, ir.IntType(bits).as_pointer()))
            value.align = 1
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return signature, codegen

    load.__name__ = load.__qualname__ = name
    return intrinsic(load)


u8: Any = _loader(8, "u8", types.int64)
"""``int64``: the byte at ``array[index]``."""
u16: Any = _loader(16, "u16", types.int64)
"""``int64``: two bytes, little-endian."""
u32: Any = _loader(32, "u32", types.int64)
"""``int64``: four bytes, little-endian."""
u64: Any = _loader(64, "u64", types.uint64)
"""``uint64``: eight bytes, little-endian."""


def _store8(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    del typingctx, index, value
    signature = types.void(array, types.int64, types.uint64)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], builder.bitcast(pointer, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return signature, codegen


def _copy(typingctx: Any, target: Any, at: Any, source: Any, start: Any, count: Any) -> Any:
    del typingctx, at, start, count
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        destination = _pointer(context, builder, signature.args[0], args[0], args[1])
        origin = _pointer(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, destination, origin, args[4], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return signature, codegen


store8: Any = intrinsic(_store8)
"""Write a ``uint64`` to ``array[index:index + 8]``, little-endian."""
copy: Any = intrinsic(_copy)
"""``target[at:at + count] = source[start:start + count]``; the two arrays must not overlap."""


@njit(cache=True, nogil=True)
def same_bytes(one: Any, start: int, other: Any, at: int, count: int) -> bool:
    """Return whether ``one[start:start + count]`` and ``other[at:at + count]`` are equal; compares eight at a time."""
    i = 0
    while i + 8 <= count:
        if u64(one, start + i) != u64(other, at + i):
            return False
        i += 8
    while i < count:
        if u8(one, start + i) != u8(other, at + i):
            return False
        i += 1
    return True


@njit(cache=True, nogil=True)
def is_utf8(buf: Any, start: int, stop: int) -> bool:
    """Return whether bytes are UTF-8 (RFC 3629): no surrogates, no longer forms than needed."""
    at = start
    while at < stop:
        code = u8(buf, at)
        at += 1
        if code < 0x80:
            continue
        if code < 0xC2 or code > 0xF4:
            return False
        more = 1 if code < 0xE0 else 2 if code < 0xF0 else 3
        least = 0x80 if more == 1 else 0x800 if more == 2 else 0x10000
        code &= 0x3F >> more
        if at + more > stop:
            return False
        for _ in range(more):
            if u8(buf, at) & 0xC0 != 0x80:
                return False
            code = code << 6 | u8(buf, at) & 0x3F
            at += 1
        if code < least or code > 0x10FFFF or 0xD800 <= code < 0xE000:
            return False
    return True


@njit(cache=True, nogil=True)
def put_utf8(out: Any, at: int, code: int) -> int:
    """Write one character as UTF-8. Return the index of the next one."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | code >> 6
        out[at + 1] = 0x80 | code & 0x3F
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | code >> 12
        out[at + 1] = 0x80 | code >> 6 & 0x3F
        out[at + 2] = 0x80 | code & 0x3F
        return at + 3
    out[at] = 0xF0 | code >> 18
    out[at + 1] = 0x80 | code >> 12 & 0x3F
    out[at + 2] = 0x80 | code >> 6 & 0x3F
    out[at + 3] = 0x80 | code & 0x3F
    return at + 4
