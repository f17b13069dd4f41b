"""Run cases of a target in this process, and report what must not happen.

A case's number and its target's name make it: every case can be run again alone.
"""

from __future__ import annotations

import random
import time
import traceback
from dataclasses import dataclass
from typing import Any

from headgate.errors import HeadgateError
from tests.fuzz.memory import Guarded, around, check_unchanged, limit_memory, unlimit_memory
from tests.fuzz.targets import Target

__all__ = ["Fault", "case_of", "check"]

_SLOW_SECONDS = 1.0
"""Processor time of one decoding."""
_ROOM = 64 << 20
"""Most bytes that decoding may allocate, beside 100 bytes for each of the input's."""
_ROOM_OF_COMPILER = 4 << 30
"""The same for the first decoding of a case, which may compile a kernel or load one."""


@dataclass(frozen=True)
class Fault:
    """Outcome of a case other than a value or an error of headgate's."""

    what: str
    where: str = ""
    """Innermost line of headgate's code."""
    error: Exception | None = None


def case_of(name: str, target: Target, number: int) -> bytes:
    """Return the bytes of a case."""
    return target.make(random.Random(f"{name} {number}"))


def check(name: str, target: Target, number: int, memory: Guarded) -> Fault | None:
    """Decode one case twice, with other memory around it. Return the fault, if any."""
    data = case_of(name, target, number)
    try:
        guarded = _outcome(target, data, memory, 0xEE, _ROOM_OF_COMPILER)
        began = time.process_time()
        plain = _outcome(target, data, None, 0x01, _ROOM)
        seconds = time.process_time() - began
    except Exception as error:  # noqa: BLE001 - errors that no description names are what this looks for
        return Fault(f"{type(error).__name__}: {str(error)[:200]}", _line(error), error)
    if seconds > _SLOW_SECONDS:
        return Fault(f"took {seconds:.1f} s of processor time")
    if guarded != plain:
        return Fault(f"depends on memory around its input: {guarded[:150]} | {plain[:150]}")
    return None


def _outcome(target: Target, data: bytes, guarded: Guarded | None, canary: int, room: int) -> str:
    placed: list[tuple[Any, int, bytes]] = []

    def place(piece: bytes, *, writable: bool = False) -> Any:
        if guarded is not None:
            buf, begin = guarded.hold(piece, canary)
            placed[:] = [] if writable else [(buf, begin, piece)]
            return buf[begin:]
        buf, begin, end = around(piece, canary)
        if not writable:
            placed.append((buf, begin, piece))
        return buf[begin:end]

    limit_memory(room + 100 * len(data))
    try:
        outcome = str(target.run(data, place))
    except HeadgateError as error:
        outcome = f"{type(error).__name__}: {error}"
    except target.errors as error:
        if type(error) not in target.errors:
            raise
        outcome = f"{type(error).__name__}: {error}"
    finally:
        unlimit_memory()
    for buf, begin, piece in placed:
        check_unchanged(buf, begin, piece, canary)
    return outcome


def _line(error: BaseException) -> str:
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "/headgate/" in one.filename]
    return "" if not frames else f"{frames[-1].filename.rpartition('/headgate/')[2]}:{frames[-1].lineno}"
