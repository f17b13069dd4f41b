"""MySQL's lexical rules, so far as needed to classify statements (MySQL source sql/sql_lex.cc).

The text of an executable comment (``/*! … */``) is part of the statement, whatever its version: a server turns those
that it does not run into plain comments (``/* 99999 … */``) before it logs the statement. So what its log still has as
``/*!``, it ran. One inside another needs no end: the first ``*/`` ends both.

sqlglot's tokenizer is not used because it drops executable comments and knows neither ANSI_QUOTES nor
NO_BACKSLASH_ESCAPES: each could hide a table name.
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

__all__ = ["LexError", "SqlToken", "tokens"]


class LexError(Exception):
    """A quote or comment does not end. It never leaves the catalog: the statement becomes ``unknown``."""


class SqlToken(NamedTuple):
    """``kind``: ``word`` (keyword or bare name), ``name`` (quoted name), ``number`` (without a sign), ``string``,
    ``symbol``, ``variable``.
    """

    kind: str
    text: str

    @property
    def upper(self) -> str:
        """The keyword this token may be; ``""`` for all tokens except bare words and symbols. Keywords are ASCII."""
        return self.text.upper() if self.kind in ("word", "symbol") and self.text.isascii() else ""


_NO_BREAK_SPACE = "\u00a0"
_LETTERS = r"\w$\u0080-\u009f\u00a1-\uffff"
"""A bare name may have every character from U+0080 to U+FFFF: also signs, combining marks and spaces beyond ASCII
(MySQL Reference Manual, "Schema Object Names"). Only the no-break space ends a name in some character sets."""
_COMMENT = r"(?P<comment>/\*(?!!)(?s:.*?)\*/)"
_OPEN = r"(?P<open>/\*!(?:[0-9]{5,6})?)"
_CLOSE = r"(?P<close>\*/)"
_BACKTICK = r"(?P<backtick>`(?:[^`]|``)*`)"
_SYMBOL = r"(?P<symbol>[^\s\"'`])"
_PLAIN = r"(?:[^{q}]|{q}{q})*"
_ESCAPED = r"(?:[^{q}\\]|{q}{q}|\\(?s:.))*"


def _pattern(backslash: bool, no_break_space: bool) -> re.Pattern[str]:
    white, letters = (_NO_BREAK_SPACE, _LETTERS) if no_break_space else ("", _LETTERS + _NO_BREAK_SPACE)
    space = rf"(?P<space>[ \t-\r{white}]+)"
    line_comment = rf"(?P<line>\#[^\n]*|--(?=[\x00-\x20{white}]|\Z)[^\n]*)"
    # MySQL ends a number with a point or an exponent at its last digit, and begins the next word there. Behind a point
    # or a name, or with letters behind its digits, it is part of a name.
    real = r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
    number = f'(?P<number>(?<![.`"{letters}])(?:{real}|[0-9]+(?![{letters}])))'
    variable = f"(?P<variable>@@?[.{letters}]*)"
    word = f"(?P<word>[{letters}]+)"
    body = _ESCAPED if backslash else _PLAIN
    single = f"(?P<single>'{body.format(q=chr(39))}')"
    double = f'(?P<double>"{body.format(q=chr(34))}")'
    name = '(?P<ansi>"(?:[^"]|"")*")'
    parts = [space, line_comment, _COMMENT, _OPEN, _CLOSE, _BACKTICK, single, double, variable, number, word]
    return re.compile("|".join([*parts, _SYMBOL, name]))


_PATTERNS = {modes: _pattern(*modes) for modes in itertools.product((False, True), repeat=2)}
_ANSI_NAME = re.compile(r'"(?:[^"]|"")*"')


def tokens(sql: str, *, ansi_quotes: bool, backslash_escapes: bool, no_break_space: bool) -> list[SqlToken]:
    """Return the tokens of a statement in a server's log, without comments.

    :param no_break_space: a no-break space outside quotes is white space, not a letter.
    :raises LexError: a quote or comment does not end.
    """
    out: list[SqlToken] = []
    at, inside = 0, False
    pattern = _PATTERNS[backslash_escapes, no_break_space]
    while at < len(sql):
        if ansi_quotes and sql[at] == '"':
            match = _ANSI_NAME.match(sql, at)
            if not match:
                raise LexError(f"unterminated name at {at}")
            out.append(SqlToken("name", _unquote(match[0])))
            at = match.end()
            continue
        match = pattern.match(sql, at)
        if not match or (match.lastgroup == "symbol" and sql.startswith("/*", at)):
            raise LexError(f"unterminated quote or comment at {at}")
        at = match.end()
        kind = str(match.lastgroup)
        if kind == "open":
            inside = True
        elif kind == "close" and inside:
            inside = False
        else:
            _append(out, kind, match[0])
    if inside:
        raise LexError("unterminated executable comment")
    return out


def _append(out: list[SqlToken], kind: str, text: str) -> None:
    if kind == "backtick":
        out.append(SqlToken("name", _unquote(text)))
    elif kind in ("single", "double"):
        out.append(SqlToken("string", text[1:-1]))
    elif kind == "close":
        out.extend((SqlToken("symbol", "*"), SqlToken("symbol", "/")))
    elif kind not in ("space", "line", "comment"):
        out.append(SqlToken(kind, text))


def _unquote(text: str) -> str:
    quote = text[0]
    return text[1:-1].replace(quote * 2, quote)
