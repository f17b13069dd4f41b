"""A bounds-checked cursor over the bytes of one event, for the events that are parsed in Python."""

from __future__ import annotations

from headgate.errors import DecodeError

__all__ = ["Cursor"]


class Cursor:
    """Reader of little-endian numbers and strings from ``data``, never past its end.

    :raises DecodeError: from every method, if fewer bytes are left than requested.
    """

    __slots__ = ("data", "pos")

    def __init__(self, data: bytes, pos: int = 0) -> None:
        self.data = data
        self.pos = pos

    @property
    def left(self) -> int:
        """Number of unread bytes."""
        return len(self.data) - self.pos

    def take(self, count: int) -> bytes:
        if count < 0 or count > self.left:
            raise DecodeError(f"an event ends early: {count} bytes wanted, {self.left} left")
        start = self.pos
        self.pos += count
        return self.data[start : self.pos]

    def rest(self) -> bytes:
        return self.take(self.left)

    def uint(self, size: int) -> int:
        """Read an unsigned little-endian number of ``size`` bytes."""
        return int.from_bytes(self.take(size), "little")

    def packed(self) -> int:
        """Read a length-encoded integer ("Length-Encoded Integer Type" of the client/server protocol)."""
        first = self.uint(1)
        if first < 251:
            return first
        size = {252: 2, 253: 3, 254: 8}.get(first)
        if size is None:
            raise DecodeError(f"byte {first} does not begin a length-encoded integer")
        return self.uint(size)

    def varint(self) -> int:
        """Read an unsigned variable-length integer of the server's serialization library.

        The number of trailing 1-bits of the first byte is the number of bytes that follow it. The remaining bits of
        the first byte are the number's lowest. Source: MySQL source
        ``libs/mysql/serialization/variable_length_integers.h``.
        """
        first = self.uint(1)
        extra = 0
        while extra < 8 and first >> extra & 1:
            extra += 1
        if extra == 8:
            return self.uint(8)
        return first >> (extra + 1) | self.uint(extra) << (7 - extra)

    def signed_varint(self) -> int:
        """Read a signed variable-length integer: zigzag over :meth:`varint`."""
        value = self.varint()
        return value >> 1 ^ -(value & 1)
