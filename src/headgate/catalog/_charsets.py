"""Character sets of names and values: collation numbers, and text of bytes for the few strings a definition holds.

Values of rows never pass here: ``headgate.columns`` converts them in kernels, from the same tables.
"""

from __future__ import annotations

from headgate.catalog._charset_data import COLLATIONS, SINGLE_BYTE
from headgate.errors import UnsupportedError

__all__ = ["COLLATIONS", "SINGLE_BYTE", "decode_text", "normalise"]

_PYTHON_CODECS = {
    "utf8mb4": "utf-8", "utf8mb3": "utf-8", "ascii": "ascii", "utf16": "utf-16-be", "ucs2": "utf-16-be",
    "utf16le": "utf-16-le", "utf32": "utf-32-be", "gbk": "gbk", "gb2312": "gb2312", "gb18030": "gb18030",
    "big5": "big5", "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "euc_kr",
}  # fmt: skip
"""Only for ENUM and SET members; MySQL's tables and Python's agree on the characters such names use."""


def normalise(charset: str | None, collation: str | None) -> tuple[str | None, str | None]:
    """One name for each: ``binary`` is no character set; servers before 8.0.30 say ``utf8`` for ``utf8mb3``."""
    if charset is None or charset == "binary":
        return None, None
    if charset == "utf8":
        charset = "utf8mb3"
    if collation is not None and collation.startswith("utf8_"):
        collation = "utf8mb3_" + collation[len("utf8_") :]
    return charset, collation


def decode_text(value: bytes, charset: str | None, *, table: str, column: str) -> str:
    """The text of an ENUM or SET member stored in ``charset`` (None: bytes, taken as UTF-8).

    :raises UnsupportedError: the character set is unknown, or the bytes are not text in it.
    """
    if charset in SINGLE_BYTE:
        characters = SINGLE_BYTE[charset]
        return "".join(characters[byte] for byte in value)
    codec = _PYTHON_CODECS.get(charset or "utf8mb4")
    try:
        if codec is not None:
            return value.decode(codec)
    except UnicodeDecodeError:
        pass
    raise UnsupportedError(
        f"an ENUM or SET member is not readable as {charset or 'UTF-8'} text: 0x{value.hex()}",
        table=table,
        column=column,
    )
