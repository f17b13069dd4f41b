"""Run cases of a target in this process, and report what must not happen.

A case's number and its target's name make it: every case can be run again alone.
"""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headgate.errors import HeadgateError
from tests.fuzz.memory import Guarded, around, check_unchanged, limit_memory, unlimit_memory
from tests.fuzz.targets import Target

__all__ = ["Fault", "case_of", "check", "run_cases"]

_SLOW_SECONDS = 1.0
"""Processor time of one decoding."""
_ROOM = 64 << 20
"""Most bytes that decoding may allocate, beside 100 bytes for each of the input's."""
_CANARIES = (0xEE, 0x01)


@dataclass(frozen=True)
class Fault:
    """A case with another outcome than a value or an error of headgate's."""

    target: str
    case: int
    what: str
    where: str = ""
    """The innermost line of headgate's code."""


def case_of(name: str, target: Target, number: int) -> bytes:
    """Return the bytes of a case."""
    return target.make(random.Random(f"{name} {number}"))


def run_cases(name: str, target: Target, numbers: Iterator[int], memory: Guarded) -> Iterator[Fault | None]:
    """Run cases. Yield after each whether there was a fault."""
    for number in numbers:
        yield check(name, target, number, memory)


def check(name: str, target: Target, number: int, memory: Guarded) -> Fault | None:
    """Run one case, in two memories."""
    data = case_of(name, target, number)
    outcomes = []
    for guarded, canary in zip((memory, None), _CANARIES, strict=True):
        began = time.process_time()
        try:
            outcomes.append(_outcome(target, data, guarded, canary))
        except AssertionError as error:
            return Fault(name, number, f"AssertionError: {error}", _line(error))
        except Exception as error:  # noqa: BLE001 - every other one is what is looked for
            return Fault(name, number, f"{type(error).__name__}: {str(error)[:200]}", _line(error))
        if _is_slow(began):  # and not because it loaded a kernel
            began = time.process_time()
            _outcome(target, data, guarded, canary)
            if _is_slow(began):
                return Fault(name, number, f"took {time.process_time() - began:.1f} s of processor time")
    if outcomes[0] != outcomes[1]:
        return Fault(name, number, f"depends on memory around its input: {outcomes[0][:150]} | {outcomes[1][:150]}")
    return None


def _is_slow(began: float) -> bool:
    return time.process_time() - began > _SLOW_SECONDS


def _outcome(target: Target, data: bytes, guarded: Guarded | None, canary: int) -> str:
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

    limit_memory(_ROOM + 100 * len(data))
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
