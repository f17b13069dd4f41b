"""What is fuzzed: for each decoder, how damaged input is made, and how it is called.

A case is bytes. ``run`` puts them into memory by :data:`Place` and returns the decoder's result in a form that can be
compared: the same for every memory around the bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["TARGETS", "Place", "Target", "target"]

Place = Callable[..., Any]
"""Puts bytes into memory (uint8[]) that shows wild reads and writes; ``writable``: the decoder may write into them."""
TARGETS: dict[str, Callable[[], Target]] = {}
"""By name: makes the target, which loads what it needs."""


@dataclass(frozen=True)
class Target:
    """One decoder, or one family of them."""

    make: Callable[[random.Random], bytes]
    """Makes a case."""
    run: Callable[[bytes, Place], object]
    """Decodes it. Errors of headgate's are results."""
    errors: tuple[type[BaseException], ...] = ()
    """Other errors that the decoder's description names; exactly these classes."""


def target(make_target: Callable[[], Target]) -> Callable[[], Target]:
    """Enter a target under its function's name."""
    TARGETS[make_target.__name__.replace("_", "-")] = make_target
    return make_target
