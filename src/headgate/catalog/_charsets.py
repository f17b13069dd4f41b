"""Character sets of names and values: collation numbers, and decoding of the few strings in a definition.

Values of rows are not decoded here: ``headgate.columns`` converts them in kernels, from the same tables.
"""

from __future__ import annotations

import contextlib
import re

from headgate.catalog._charset_data import COLLATIONS, WHITE_NO_BREAK_SPACE
from headgate.catalog._code_tables import MULTI_BYTE, SINGLE_BYTE, multi_byte_table, single_byte_text
from headgate.errors import UnsupportedError

__all__ = ["COLLATIONS", "decode_statement", "decode_text", "no_break_space_is_white", "normalise"]

_UNICODE = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "ascii": "ascii",
    "utf16": "utf-16-be",
    "ucs2": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
"""Python's names of the sets that need no table."""
_SWE7_LETTERS = re.compile(rb"[@\[\\\]^{|}~]|``")
"""Letters of swe7. MySQL's lexer reads their codes as signs of ASCII: one 0x60 is a quote, two are ``é`` in a name."""


def normalise(charset: str | None, collation: str | None) -> tuple[str | None, str | None]:
    """Return one name for each: ``binary`` is no character set; before 8.0.30 ``utf8mb3`` reads ``utf8``."""
    if charset is None or charset == "binary":
        return None, None
    if charset == "utf8":
        charset = "utf8mb3"
    if collation is not None and collation.startswith("utf8_"):
        collation = "utf8mb3_" + collation[len("utf8_") :]
    return charset, collation


def decode_text(value: bytes, charset: str | None, *, table: str, column: str) -> str:
    """Return the text of an ENUM or SET member stored in ``charset`` (None: bytes, read as UTF-8).

    :raises UnsupportedError: the character set is unknown, or the bytes are not text in it.
    """
    text = _decoded(value, charset)
    if text is not None:
        return text
    raise UnsupportedError(
        f"an ENUM or SET member is not readable as {charset or 'UTF-8'} text: 0x{value.hex()}",
        table=table,
        column=column,
    )


def decode_statement(value: bytes, collation: int) -> str:
    """Return the text of a statement as a client sent it.

    Bytes that are not text of the set (a string with an introducer may hold any bytes) become surrogates, so that no
    quote is lost.

    :param collation: number of a collation of the client's character set; 0 or ``binary``: UTF-8, as names are then.
    :raises UnsupportedError: the character set is unknown, or a statement in it is not read.
    """
    charset = COLLATIONS[collation][1] if collation in COLLATIONS else None if collation else "binary"
    if charset in ("binary", "utf8mb4", "utf8mb3", "ascii"):
        return value.decode("utf-8", "surrogateescape")
    if charset == "swe7" and not _SWE7_LETTERS.search(value):
        return value.decode("ascii", "surrogateescape")
    if charset in MULTI_BYTE:
        return str(multi_byte_table(charset).decode(value, escapes=True))
    text = None if charset in (None, "swe7") else _decoded(value, charset)
    if text is not None:
        return text
    raise UnsupportedError(f"a statement is not readable as {charset or f'text of collation {collation}'}")


def no_break_space_is_white(collation: int) -> bool:
    """Return whether a no-break space divides the words of a statement, as MySQL's lexer reads it in the client's
    character set. In UTF-8 it is a letter of a bare name.

    :param collation: as for :func:`decode_statement`.
    """
    return collation in COLLATIONS and COLLATIONS[collation][1] in WHITE_NO_BREAK_SPACE


def _decoded(value: bytes, charset: str | None) -> str | None:
    """Return the text; None if the character set is unknown, or the bytes are not text in it."""
    if charset in SINGLE_BYTE:
        characters = single_byte_text(charset)
        return "".join(characters[byte] for byte in value)
    if charset in MULTI_BYTE:
        return multi_byte_table(charset).decode(value)
    with contextlib.suppress(UnicodeDecodeError, KeyError):
        return value.decode(_UNICODE[charset or "utf8mb4"])
    return None
