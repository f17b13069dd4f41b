"""Generate ``src/headgate/catalog/_charset_data.py`` and ``_multibyte_data.py`` from a running MySQL server.

The collation numbers come from information_schema.COLLATIONS; the characters of every set from what the server's own
``CONVERT(… USING utf8mb4)`` makes of each code that a column of the set can store (``?`` where the set has no
character). The server needs a database to work in, ``headgate_charsets``, which is made and dropped. Run it against the
newest server series that headgate supports::

    python tools/generate_charsets.py mysql://root@127.0.0.1:3306/

How the tables of the multi-byte sets are packed is stated in ``src/headgate/catalog/_multibyte.py``, which unpacks
them.
"""

from __future__ import annotations

import base64
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt
import pymysql

ROOM = Path(__file__).parents[1] / "src" / "headgate" / "catalog"
SKIPPED = ("binary", "ascii")
DATABASE = "headgate_charsets"
BASES = {"gbk": "", "gb2312": "gbk", "gb18030": "gbk", "sjis": "", "cp932": "sjis", "big5": "", "ujis": "",
         "eucjpms": "ujis", "euckr": ""}  # fmt: skip
"""The multi-byte sets that are not UTF, and the set that each is stored as a difference to."""
THREE_BYTES = ("ujis", "eucjpms")
"""Sets with codes of three bytes, all of which begin with 0x8F."""
NO_CHARACTER = 0xFFFF
"""In the tables: no code. (The character U+FFFF is only in gb18030, as a code of four bytes.)"""

Codes: TypeAlias = npt.NDArray[np.uint16]
Cursor: TypeAlias = pymysql.cursors.Cursor


def single_byte_text(cursor: Cursor, charset: str) -> str:
    """The 256 characters of a single-byte character set, in byte order."""
    expressions = ", ".join(f"HEX(CONVERT(_{charset} 0x{byte:02X} USING utf8mb4))" for byte in range(256))
    cursor.execute(f"SELECT {expressions}")
    row = cursor.fetchone()
    assert row is not None
    characters = [bytes.fromhex(value).decode("utf-8") for value in row]
    if any(len(character) != 1 for character in characters):
        raise SystemExit(f"{charset}: a byte does not map to exactly one character")
    return "".join(characters)


def stored_codes(cursor: Cursor, charset: str, size: int, first: int, count: int) -> Iterator[tuple[int, int, bool]]:
    """``(code, character, whether the character is written as that code)`` of the codes that a column can hold.

    A column, not ``CONVERT(bytes USING set)``, because that lets broken eucjpms pass.
    """
    cursor.execute(f"CREATE TABLE {DATABASE}.codes (n INT, b VARBINARY(4), c VARCHAR(4) CHARACTER SET {charset})")
    cursor.execute(
        f"INSERT IGNORE INTO {DATABASE}.codes WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n"
        f" WHERE i < {first + count - 1}), x (i, b) AS (SELECT i, UNHEX(LPAD(HEX(i), {2 * size}, '0')) FROM n)"
        " SELECT i, b, b FROM x"
    )
    cursor.execute(
        "SELECT n, HEX(CONVERT(c USING utf8mb4)),"
        f" HEX(CONVERT(CONVERT(c USING utf8mb4) USING {charset})) = HEX(b) FROM {DATABASE}.codes"
        " WHERE HEX(c) = HEX(b) AND CHAR_LENGTH(c) = 1"
    )
    rows = cursor.fetchall()
    cursor.execute(f"DROP TABLE {DATABASE}.codes")
    for code, text, returns in rows:
        yield int(code), ord(bytes.fromhex(text).decode("utf-8")), bool(returns)


def code_table(cursor: Cursor, charset: str, ranges: list[tuple[int, int, int]], aliases: list[int]) -> Codes:
    """The characters of codes by their last two bytes; ``aliases`` gets those whose character has another code."""
    table = np.full(65536, NO_CHARACTER, np.uint16)
    for size, first, count in ranges:
        for code, character, returns in stored_codes(cursor, charset, size, first, count):
            assert character < NO_CHARACTER
            table[code & 0xFFFF] = character
            if not returns and character != ord("?"):
                aliases.append(code)
    return table


def four_byte_runs(cursor: Cursor) -> list[tuple[int, int, int]]:
    """gb18030's codes of four bytes: runs ``(number of the first code, its character, codes)``, by number."""
    digit = "SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6"
    digits = f"{digit} UNION SELECT 7 UNION SELECT 8 UNION SELECT 9"
    runs: list[tuple[int, int, int]] = []
    for lead in range(126):
        cursor.execute(
            f"WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 125), d AS ({digits}),"
            f" x (k, b) AS (SELECT (p.d * 126 + n.i) * 10 + q.d, CHAR({0x81 + lead}, 48 + p.d, 129 + n.i, 48 + q.d)"
            " FROM d p, n, d q) SELECT k, HEX(CONVERT(CONVERT(b USING gb18030) USING utf8mb4)) FROM x ORDER BY k"
        )
        for k, text in cursor.fetchall():
            number, character = lead * 12600 + int(k), ord(bytes.fromhex(text).decode("utf-8"))
            if character == ord("?"):
                continue
            first, begin, count = runs[-1] if runs else (0, 0, 0)
            if number == first + count and character == begin + count:
                runs[-1] = (first, begin, count + 1)
            else:
                runs.append((number, character, 1))
    return runs


def packed(codes: Codes) -> str:
    """A table as text: differences of neighbours, compressed, in base 85."""
    return base64.b85encode(zlib.compress(np.diff(codes, prepend=np.uint16(0)).tobytes(), 9)).decode("ascii")


def entry(name: str, text: str, size: int = 100) -> list[str]:
    """A line of a dictionary, as many of source as a long text takes."""
    if len(text) <= size:
        return [f'    "{name}": "{text}",']
    pieces = [f'        "{text[start : start + size]}"' for start in range(0, len(text), size)]
    return [f'    "{name}": (', *pieces, "    ),"]


def render_multibyte(version: str, cursor: Cursor) -> str:
    """The text of ``_multibyte_data.py``."""
    tables: dict[str, Codes] = {}
    lines = [f'"""Generated by tools/generate_charsets.py from MySQL {version}; do not edit."""', ""]
    lines += ["from __future__ import annotations", "", "from typing import Final", ""]
    lines += ["CODES: Final[dict[str, str]] = {"]
    origins: dict[str, str] = {}
    aliases: dict[str, list[int]] = {charset: [] for charset in BASES}
    for charset, base in BASES.items():
        ranges = {charset: [(1, 0, 256), (2, 0x8000, 0x8000)]}
        if charset in THREE_BYTES:
            ranges[f"{charset}-8f"] = [(3, 0x8F0000, 65536)]
        for name, wanted in ranges.items():
            table = tables[name] = code_table(cursor, charset, wanted, aliases[charset])
            origin = name.replace(charset, base) if base else ""
            text = packed(table ^ tables[origin] if origin else table)
            lines += entry(name, text)
            if origin:
                origins[name] = origin
    lines += ["}", '"""Table -> its packed codes."""', "", "ORIGINS: Final[dict[str, str]] = {"]
    lines += [f'    "{name}": "{origin}",' for name, origin in origins.items()]
    lines += ["}", '"""Table -> the table that it was XORed with before it was packed."""', ""]
    lines += ["ALIASES: Final[dict[str, str]] = {"]
    for charset, codes in aliases.items():
        if codes:
            lines += entry(charset, " ".join(f"{code:x}" for code in sorted(codes)))
    lines += ["}", '"""Set -> codes whose character is written as another code, in hex."""', ""]
    lines += ["GB18030_RUNS: Final[tuple[tuple[int, int, int], ...]] = ("]
    runs = [f"({first}, {character}, {count})," for first, character, count in four_byte_runs(cursor)]
    lines += ["    " + " ".join(runs[start : start + 4]) for start in range(0, len(runs), 4)]
    lines += [")  # fmt: skip", '"""Number of the first code, its character, how many follow one another."""', ""]
    return "\n".join(lines)


def render(version: str, collations: list[tuple[int, str, str]], tables: dict[str, str]) -> str:
    """The text of ``_charset_data.py``."""
    lines = [
        f'"""Generated by tools/generate_charsets.py from MySQL {version}; do not edit."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final",
        "",
        "COLLATIONS: Final[dict[int, tuple[str, str]]] = {",
        *(f'    {number}: ("{name}", "{charset}"),' for number, name, charset in collations),
        "}",
        '"""Collation number -> (collation name, character set name)."""',
        "",
        "SINGLE_BYTE: Final[dict[str, str]] = {",
    ]
    for charset, text in tables.items():
        lines.append(f'    "{charset}": (')
        for start in range(0, 256, 16):
            chunk = "".join(f"\\u{ord(character):04x}" for character in text[start : start + 16])
            lines.append(f'        "{chunk}"')
        lines.append("    ),")
    lines += ["}", '"""Character set name -> its 256 characters, in byte order."""', ""]
    return "\n".join(lines)


def main(url: str) -> None:
    """Query the server at ``url`` and write the modules."""
    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        charset="utf8mb4",
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        row = cursor.fetchone()
        assert row is not None
        version = str(row[0]).split("-")[0]
        cursor.execute("SELECT ID, COLLATION_NAME, CHARACTER_SET_NAME FROM information_schema.COLLATIONS ORDER BY ID")
        collations = [(int(number), str(name), str(charset)) for number, name, charset in cursor.fetchall()]
        cursor.execute("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS WHERE MAXLEN = 1 ORDER BY 1")
        names = [str(name) for (name,) in cursor.fetchall() if name not in SKIPPED]
        tables = {name: single_byte_text(cursor, name) for name in names}
        (ROOM / "_charset_data.py").write_text(render(version, collations, tables), encoding="utf-8")
        cursor.execute("SET sql_mode = '', cte_max_recursion_depth = 100000, max_error_count = 0")
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        try:
            (ROOM / "_multibyte_data.py").write_text(render_multibyte(version, cursor), encoding="utf-8")
        finally:
            cursor.execute(f"DROP DATABASE {DATABASE}")
    print(f"{ROOM}: {len(collations)} collations, {len(tables)} single-byte sets, {len(BASES)} multi-byte sets")


if __name__ == "__main__":
    main(sys.argv[1])
