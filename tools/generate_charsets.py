"""Generate ``src/headgate/catalog/_charset_data.py`` and its digests from a running MySQL server.

The collation numbers come from information_schema.COLLATIONS; the sets with a white no-break space from what the
server's lexer makes of it between two words; the characters of every set from what the server's own
``CONVERT(… USING utf8mb4)`` makes of each code that a column of the set can store (``?`` where the set has no
character). The server needs a database to work in, ``headgate_charsets``, which is made and dropped. Run it against the
newest server series that headgate supports::

    python tools/generate_charsets.py mysql://root@127.0.0.1:3306/

Written are only the codes that Python's codec, chosen in ``src/headgate/catalog/_code_tables.py``, reads as another
character than the server.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

import pymysql

from headgate.catalog._code_tables import MULTI_BYTE, SINGLE_BYTE, code_table

ROOM = Path(__file__).parents[1] / "src" / "headgate" / "catalog"
DIGESTS = Path(__file__).parents[1] / "tests" / "catalog" / "charsets.sha256"
SKIPPED = ("binary", "ascii")
DATABASE = "headgate_charsets"
THREE_BYTES = ("ujis", "eucjpms")
"""Sets with codes of three bytes, all of which begin with 0x8F."""
FOUR_BYTES = 0x1000000
"""gb18030's codes from here on have four bytes."""
LONG = 8
"""Codes that ascend with their characters for so long are written as a run."""
NO_BREAK_SPACE = 0xA0
"""Of the characters beyond ASCII, the only one that divides words, in any set."""

Cursor: TypeAlias = pymysql.cursors.Cursor


def single_byte_codes(cursor: Cursor, charset: str) -> dict[int, int]:
    """Byte -> character of a single-byte character set."""
    expressions = ", ".join(f"HEX(CONVERT(_{charset} 0x{byte:02X} USING utf8mb4))" for byte in range(256))
    cursor.execute(f"SELECT {expressions}")
    row = cursor.fetchone()
    assert row is not None
    characters = [bytes.fromhex(value).decode("utf-8") for value in row]
    if any(len(character) != 1 for character in characters):
        raise SystemExit(f"{charset}: a byte does not map to exactly one character")
    return dict(enumerate(map(ord, characters)))


def white_characters(cursor: Cursor, charset: str, table: dict[int, int]) -> set[int]:
    """Characters beyond ASCII that divide words in the statements of a client with a single-byte character set."""
    white = set()
    cursor.execute(f"SET NAMES {charset}")
    for byte in range(0x80, 0x100):
        with contextlib.suppress(pymysql.err.Error):  # a letter: the statement is one unknown word
            cursor.connection.query(b"DO" + bytes([byte]) + b"1")
            white.add(table[byte])
    cursor.execute("SET NAMES utf8mb4")
    return white


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


def four_byte_codes(cursor: Cursor) -> dict[int, int]:
    """Code -> character of gb18030's codes of four bytes in the basic plane."""
    digit = "SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6"
    digits = f"{digit} UNION SELECT 7 UNION SELECT 8 UNION SELECT 9"
    known = {code: ord("?") for code in code_table("gb18030", patched=False) if code >= FOUR_BYTES}
    for lead in range(126):
        cursor.execute(
            f"WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 125), d AS ({digits}),"
            f" x (b) AS (SELECT CHAR({0x81 + lead}, 48 + p.d, 129 + n.i, 48 + q.d) FROM d p, n, d q)"
            " SELECT HEX(b), HEX(CONVERT(CONVERT(b USING gb18030) USING utf8mb4)) FROM x"
        )
        for code, text in cursor.fetchall():
            character = bytes.fromhex(text).decode("utf-8")
            if character > "\uffff":
                assert character.encode("gb18030").hex() == code.lower()
            elif character != "?":
                known[int(code, 16)] = ord(character)
    return known


def differences(codec: dict[int, int], server: dict[int, int]) -> tuple[list[tuple[int, str]], list[tuple[int, ...]]]:
    """Texts and runs of the codes that a codec reads as another character than the server.

    :return: ``(first code, characters)``, and ``(first code, its character, codes)`` where both ascend for long.
    """
    assert codec.keys() == server.keys()
    pairs = [(code, character) for code, character in sorted(server.items()) if codec[code] != character]
    runs: list[tuple[int, ...]] = []
    texts: list[tuple[int, str]] = []
    for code, character in pairs:
        first, begin, count = runs[-1] if runs else (0, 0, 0)
        if (code, character) == (first + count, begin + count):
            runs[-1] = (first, begin, count + 1)
        else:
            runs.append((code, character, 1))
    for first, begin, count in (run for run in runs if run[2] < LONG):
        text = "".join(map(chr, range(begin, begin + count)))
        if texts and texts[-1][0] + len(texts[-1][1]) == first:
            texts[-1] = (texts[-1][0], texts[-1][1] + text)
        else:
            texts.append((first, text))
    return texts, [run for run in runs if run[2] >= LONG]


def digest(table: dict[int, int]) -> str:
    """A digest of a set's codes and characters."""
    return hashlib.sha256(repr(sorted(table.items())).encode()).hexdigest()


def pairs_of(codes: list[int]) -> list[tuple[int, ...]]:
    """``(first, how many follow one another)``."""
    pairs: list[tuple[int, ...]] = []
    for code in sorted(codes):
        if pairs and sum(pairs[-1]) == code:
            pairs[-1] = (pairs[-1][0], pairs[-1][1] + 1)
        else:
            pairs.append((code, 1))
    return pairs


def escaped(text: str) -> str:
    """A text as a literal in ASCII."""
    return '"' + "".join(f"\\u{ord(character):04x}" for character in text) + '"'


def lines_of(name: str, kind: str, entries: dict[str, list[str]], text: str) -> list[str]:
    """A dictionary of tuples as source, filled to the width of a line."""
    lines = [f"{name}: Final[dict[str, tuple[{kind}, ...]]] = {{"]
    for charset, items in entries.items():
        if items:
            filled = textwrap.fill(" ".join(f"{item}," for item in items), 108, break_long_words=False)
            lines += [f'    "{charset}": (', *(f"        {line}" for line in filled.splitlines()), "    ),"]
    return [*lines, "}  # fmt: skip", f'"""{text}"""', ""]


def multi_byte_codes(cursor: Cursor, charset: str, aliases: list[int]) -> dict[int, int]:
    """Code -> character of a multi-byte set; ``aliases`` gets those whose character has another code."""
    table: dict[int, int] = {}
    ranges = [(1, 0, 256), (2, 0x8000, 0x8000), *([(3, 0x8F0000, 65536)] if charset in THREE_BYTES else [])]
    for size, first, count in ranges:
        for code, character, returns in stored_codes(cursor, charset, size, first, count):
            table[code] = character
            if not returns and character != ord("?"):
                aliases.append(code)
    if charset == "gb18030":
        table |= four_byte_codes(cursor)
    return table


def render(
    version: str,
    collations: list[tuple[int, str, str]],
    tables: dict[str, dict[int, int]],
    aliases: dict[str, list[int]],
    white: list[str],
) -> str:
    """The text of ``_charset_data.py``."""
    both = {name: differences(code_table(name, patched=False), table) for name, table in tables.items()}
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
    ]
    filled = textwrap.fill(", ".join(f'"{name}"' for name in white) + ",", 114)
    lines += [
        "WHITE_NO_BREAK_SPACE: Final[frozenset[str]] = frozenset([",
        *(f"    {line}" for line in filled.splitlines()),
        "])  # fmt: skip",
        '"""Sets in which a no-break space divides words of a statement. In UTF-8 it is a letter."""',
        "",
    ]
    texts = {name: [f"(0x{code:X}, {escaped(text)})" for code, text in both[name][0]] for name in both}
    runs = {
        name: [f"(0x{code:X}, 0x{character:X}, {count})" for code, character, count in both[name][1]] for name in both
    }
    pairs = {name: [f"(0x{code:X}, {count})" for code, count in pairs_of(codes)] for name, codes in aliases.items()}
    lines += lines_of(
        "PATCHES",
        "tuple[int, str]",
        texts,
        "Set -> codes that Python's codec reads otherwise: the first code, the characters.",
    )
    lines += lines_of(
        "RUNS",
        "tuple[int, int, int]",
        runs,
        "The same where codes and characters ascend: the first code, its character, how many.",
    )
    lines += lines_of(
        "ALIASES",
        "tuple[int, int]",
        pairs,
        "Set -> codes whose character is written as another code: the first, how many.",
    )
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
        assert set(names) == SINGLE_BYTE
        tables = {name: single_byte_codes(cursor, name) for name in names}
        whites = {name: white_characters(cursor, name, tables[name]) for name in names}
        assert set().union(*whites.values()) <= {NO_BREAK_SPACE}
        aliases: dict[str, list[int]] = {name: [] for name in sorted(MULTI_BYTE)}
        cursor.execute("SET sql_mode = '', cte_max_recursion_depth = 100000, max_error_count = 0")
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        try:
            tables |= {name: multi_byte_codes(cursor, name, aliases[name]) for name in aliases}
        finally:
            cursor.execute(f"DROP DATABASE {DATABASE}")
        (ROOM / "_charset_data.py").write_text(
            render(version, collations, tables, aliases, [name for name in names if whites[name]]), encoding="utf-8"
        )
        DIGESTS.write_text(
            "".join(f"{digest(table)}  {name}\n" for name, table in sorted(tables.items())), encoding="utf-8"
        )
    print(f"{ROOM}: {len(collations)} collations, {len(SINGLE_BYTE)} single-byte sets, {len(aliases)} multi-byte sets")


if __name__ == "__main__":
    main(sys.argv[1])
