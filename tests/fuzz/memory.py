"""Buffers at whose end every wild read shows: a page that nobody may touch, and bytes around that must not matter."""

from __future__ import annotations

import ctypes
import mmap
import resource
from pathlib import Path
from typing import Any

import numpy as np

_PAGE = mmap.PAGESIZE
_ROOM = 64 * _PAGE


class Guarded:
    """Memory whose last page is forbidden: a read or write behind a buffer that ends there is a SIGSEGV."""

    def __init__(self, room: int = _ROOM) -> None:
        self._map = mmap.mmap(-1, room + _PAGE)
        self._bytes = np.frombuffer(self._map, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self._bytes.ctypes.data + room), ctypes.c_size_t(_PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        self._room = room

    def hold(self, data: bytes, canary: int) -> tuple[Any, int]:
        """Return memory that ends in ``data``, before the forbidden page, and where ``data`` begins. Up to a page
        before it holds ``canary``.
        """
        if len(data) > self._room - _PAGE:
            raise ValueError(f"no room for {len(data)} bytes")
        begin = self._room - len(data)
        first = begin - _PAGE // 4
        self._bytes[first:begin] = canary
        self._bytes[begin : self._room] = np.frombuffer(data, np.uint8)
        return self._bytes[first : self._room], begin - first


class Changed(Exception):
    """A decoder wrote into its input, or beside it."""


def around(data: bytes, canary: int, room: int = 64) -> tuple[Any, int, int]:
    """Return memory with ``data`` inside, and where it begins and ends. Before and behind it are bytes ``canary``."""
    buf = np.full(len(data) + 2 * room, canary, np.uint8)
    buf[room : room + len(data)] = np.frombuffer(data, np.uint8)
    return buf, room, room + len(data)


def check_unchanged(buf: Any, begin: int, data: bytes, canary: int) -> None:
    """:raises Changed: something was written into the buffer."""
    behind = begin + len(data)
    if buf[begin:behind].tobytes() != data:
        raise Changed("the input was written to")
    if (buf[:begin] != canary).any() or (buf[behind:] != canary).any():
        raise Changed("a byte beside the input was written to")


def limit_memory(more: int) -> None:
    """Make every allocation fail by which this process would hold ``more`` bytes more than now."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + more, hard))


def unlimit_memory() -> None:
    """Allow every allocation again."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
