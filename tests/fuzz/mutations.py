"""Changes to bytes and texts that keep most of them valid: what damage, other versions and attackers do."""

from __future__ import annotations

import random
from collections.abc import Sequence

__all__ = ["mutate", "mutate_text"]

_WIDTHS = (1, 2, 3, 4, 6, 8)
_EDGES = (0, 1, 2, 127, 128, 250, 251, 252, 253, 254, 255, 256, 32767, 32768, 65535, 65536, (1 << 24) - 1,
          (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 55) - 1, (1 << 63) - 1, 1 << 63,
          (1 << 64) - 1)  # fmt: skip
_TEXTS = ("", "0", "-1", "1", "9223372036854775807", "18446744073709551616", "1e999", "null", "true", "[]", "{}", '""',
          "'", '"', "`", "\\", "\0", "\n", ",", ":", ";", "-", "(", ")", "[", "]", "{", "}", "/*", "*/", "--", "#", "%",
          "\\u0000", "\\ud800", "é", "\u2028", "\uffff", "\U0001f600", "\u0661", "NaN", "x" * 300,
          "9" * 5000, "(" * 2000, "[" * 3000)  # fmt: skip


def mutate(rng: random.Random, data: bytes, others: Sequence[bytes] = (b"",)) -> bytes:
    """Return the bytes with one to six changes."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 6))):
        _change(rng, out, others)
    return bytes(out)


def _change(rng: random.Random, out: bytearray, others: Sequence[bytes]) -> None:
    at = rng.randrange(len(out) + 1)
    size = min(len(out) - at, rng.choice((1, 1, 2, 4, 8, 16, 64)))
    match rng.randrange(9):
        case 0 if size:
            out[at] ^= 1 << rng.randrange(8)
        case 1 if size:
            out[at] = rng.choice((0, 1, 250, 251, 252, 253, 254, 255, rng.randrange(256)))
        case 2:
            width = rng.choice(_WIDTHS)
            edge = (rng.choice(_EDGES) + rng.choice((0, 0, 1, -1))) % (1 << 8 * width)
            out[at : at + width] = edge.to_bytes(width, rng.choice(("little", "big")))
        case 3 if size:
            out[at] = (out[at] + rng.choice((1, 255, 2, 254, 16))) & 255
        case 4:
            del out[at : at + size]
        case 5:
            out[at:at] = out[at : at + size]
        case 6:
            other = rng.choice(others)
            begin = rng.randrange(len(other) + 1)
            out[at : at + (size if rng.random() < 0.5 else 0)] = other[begin : begin + rng.choice((1, 4, 16, 256))]
        case 7:
            del out[at if rng.random() < 0.5 else max(0, len(out) - size) :]
        case _:
            out[at : at + size] = bytes(rng.randrange(256) for _ in range(size))


def mutate_text(rng: random.Random, text: str, others: Sequence[str] = ("",)) -> str:
    """Return the text with one to five changes."""
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        at = rng.randrange(len(text) + 1)
        size = rng.choice((0, 0, 1, 1, 2, 5, 20))
        match rng.randrange(5):
            case 0:
                piece = rng.choice(_TEXTS)
            case 1:
                other = rng.choice(others)
                begin = rng.randrange(len(other) + 1)
                piece = other[begin : begin + rng.choice((1, 5, 20, 80))]
            case 2:
                piece = text[at : at + size] * 2
            case 3:
                piece = chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x300), rng.randrange(0xD800))))
            case _:
                piece = ""
        text = text[:at] + piece + text[at + size :]
    return text
