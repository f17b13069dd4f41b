"""Row expressions: the language of ``rows`` and of the filters of a relay's consumers, as a tree.

A dozen productions, in the order of precedence: ``OR``, ``AND``, ``NOT``, then one comparison. A parser of all of SQL
would mostly have to be taught what to refuse, so this is one of its own::

    comparison  = operand ("=" | "<>" | "!=" | "<" | "<=" | ">" | ">=") operand
                | column ["NOT"] "IN" "(" literal {"," literal} ")"
                | column ["NOT"] "BETWEEN" literal "AND" literal
                | column ["NOT"] "LIKE" string
                | column "IS" ["NOT"] "NULL"
    literal     = number | 'text' | X'hex' | TRUE | FALSE | (DATE | TIME | TIMESTAMP) 'text'

Text is in single quotes, with MySQL's backslash escapes. A name is a word, or anything in backticks. Keywords and names
ignore letter case. This module knows no types. ``_rows`` binds a tree to a table and evaluates it on Arrow columns, a
relay binds it to a schema and evaluates it on events.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final, TypeAlias

from headgate.names import lower_name

__all__ = [
    "And",
    "Compare",
    "Expression",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "Name",
    "Not",
    "Operand",
    "Or",
    "columns_of",
    "days_of",
    "microseconds_of",
    "parse_expression",
    "pattern_parts",
]

_DEEPEST: Final = 50
_LONGEST: Final = 10_000
"""Limits of nesting, and of characters: definitions and table properties carry the text."""
_LARGEST_EXPONENT: Final = 308
"""Of the largest DOUBLE, and the smallest normal one."""
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<hex>[xX]'[0-9A-Fa-f]*')
    |(?P<string>'(?:[^'\\]|''|\\.)*')
    |(?P<name>`(?:[^`]|``)+`)
    |(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w$])
    |(?P<word>[^\W\d][\w$]*)
    |(?P<symbol><>|!=|<=|>=|[=<>(),+-])
    |(?P<end>\Z))""",
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE"})
_TYPED: Final = ("DATE", "TIME", "TIMESTAMP")
_SIGNS: Final = ("=", "<>", "!=", "<", "<=", ">", ">=")
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
"""MySQL Reference Manual, "String Literals"; before any other character, a backslash is left out."""


@dataclass(frozen=True, slots=True)
class Name:
    """A column, in any letter case."""

    text: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a text, or bytes."""

    value: Decimal | str | bytes


Operand: TypeAlias = Name | Literal


@dataclass(frozen=True, slots=True)
class Compare:
    """Two operands and one of ``= <> < <= > >=``."""

    sign: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class In:
    """Whether a column has one of these values."""

    column: Name
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """Whether a text matches a pattern of ``%``, ``_`` and backslash escapes."""

    column: Name
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column is NULL."""

    column: Name


@dataclass(frozen=True, slots=True)
class Not:
    """Negation; unknown stays unknown."""

    part: Expression


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of two or more parts."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of two or more parts."""

    parts: tuple[Expression, ...]


Expression: TypeAlias = Compare | In | Like | IsNull | Not | And | Or


@lru_cache(maxsize=1024)
def parse_expression(text: str) -> Expression:
    """Parse a row expression.

    :raises ValueError: it is none; the message shows where.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"the expression has more than {_LONGEST} characters")
    parser = _Parser(text)
    tree = parser.either()
    parser.expect("")
    return tree


def columns_of(tree: Expression) -> frozenset[str]:
    """Return the names of the columns that an expression uses, in lower case."""
    match tree:
        case Compare(left=left, right=right):
            return frozenset(lower_name(one.text) for one in (left, right) if isinstance(one, Name))
        case In(column=column) | Like(column=column) | IsNull(column=column):
            return frozenset({lower_name(column.text)})
        case Not(part=part):
            return columns_of(part)
        case And(parts=parts) | Or(parts=parts):
            return frozenset().union(*map(columns_of, parts))


def days_of(text: str) -> int:
    """Return the days since 1970 of a literal for a DATE.

    :raises ValueError: it is not ``2026-01-31``.
    """
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        raise ValueError
    return date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()


def microseconds_of(text: str) -> int:
    """Return the µs since 1970 of a literal for a DATETIME or TIMESTAMP.

    :raises ValueError: it is not ``2026-01-31``, perhaps with `` 12:00:00`` and up to 6 digits of seconds.
    """
    if not re.fullmatch(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)?", text):
        raise ValueError
    seconds, _, fraction = text.partition(".")
    moment = datetime.fromisoformat(seconds) - datetime(1970, 1, 1)  # noqa: DTZ001 - both are naive
    return (moment.days * 86_400 + moment.seconds) * 1_000_000 + int(fraction.ljust(6, "0") or "0")


def time_micros_of(text: str) -> int:
    """Return the µs of a literal for a TIME.

    :raises ValueError: it is not ``12:00:00``, perhaps with a sign, up to 3 digits of hours and 6 of a fraction.
    """
    match = re.fullmatch(r"(-?)(\d{1,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?", text)
    if match is None:
        raise ValueError
    sign, hours, minutes, seconds, fraction = match.groups(default="")
    micros = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int(fraction.ljust(6, "0"))
    return -micros if sign else micros


def pattern_parts(pattern: str) -> list[str]:
    """Return the parts of a LIKE pattern: ``%``, ``_``, or a backslash and one letter, or another letter."""
    return re.findall(r"\\.|.", pattern, re.DOTALL)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._advance()

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            rest = self._text[self._at :].lstrip()[:30]
            hint = "; text is written in single quotes" if rest.startswith('"') else ""
            raise ValueError(f"unexpected {rest!r}{hint}")
        self._start, self._at = self._at, match.end()
        self._kind = str(match.lastgroup)
        self._token = match[self._kind]

    @property
    def _keyword(self) -> str:
        return self._token.upper() if self._kind in ("word", "symbol", "end") else "\0"

    def _take(self, *keywords: str) -> bool:
        if self._keyword not in keywords:
            return False
        self._advance()
        return True

    def expect(self, keyword: str) -> None:
        """Read this keyword or symbol; ``""``: the end."""
        if self._keyword != keyword:
            raise self._unexpected(keyword or "AND, OR or the end")
        if keyword:
            self._advance()

    def _unexpected(self, expected: str) -> ValueError:
        where = repr(self._text[self._start :].strip()[:30]) if self._kind != "end" else "the end"
        return ValueError(f"expected {expected} at {where}")

    def either(self) -> Expression:
        """Read an expression."""
        parts = [self._both()]
        while self._take("OR"):
            parts.append(self._both())
        return Or(tuple(parts)) if len(parts) > 1 else parts[0]

    def _both(self) -> Expression:
        parts = [self._negation()]
        while self._take("AND"):
            parts.append(self._negation())
        return And(tuple(parts)) if len(parts) > 1 else parts[0]

    def _negation(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(f"the expression is nested more than {_DEEPEST} deep")
        tree: Expression
        if self._take("NOT"):
            tree = Not(self._negation())
        elif self._take("("):
            tree = self.either()
            self.expect(")")
        else:
            tree = self._comparison()
        self._depth -= 1
        return tree

    def _comparison(self) -> Expression:
        left = self._operand()
        for sign in _SIGNS:
            if self._take(sign):
                return Compare("<>" if sign == "!=" else sign, left, self._operand())
        if not isinstance(left, Name):
            raise self._unexpected("a comparison")
        if self._take("IS"):
            negated = self._take("NOT")
            self.expect("NULL")
            return Not(IsNull(left)) if negated else IsNull(left)
        negated = self._take("NOT")
        tree = self._membership(left)
        return Not(tree) if negated else tree

    def _membership(self, column: Name) -> Expression:
        if self._take("IN"):
            self.expect("(")
            values = [self._literal()]
            while self._take(","):
                values.append(self._literal())
            self.expect(")")
            return In(column, tuple(values))
        if self._take("BETWEEN"):
            low = self._literal()
            self.expect("AND")
            return And((Compare(">=", column, low), Compare("<=", column, self._literal())))
        if self._take("LIKE"):
            pattern = self._literal().value
            if isinstance(pattern, str):
                return Like(column, pattern)
            raise ValueError("LIKE needs a text as its pattern")
        raise self._unexpected("=, <>, <, <=, >, >=, IN, BETWEEN, LIKE or IS NULL")

    def _operand(self) -> Operand:
        is_name = self._kind == "name" or (self._kind == "word" and self._keyword not in _KEYWORDS)
        if is_name and not self._is_typed_literal():
            text = self._token[1:-1].replace("``", "`") if self._kind == "name" else self._token
            self._advance()
            return Name(text)
        return self._literal()

    def _is_typed_literal(self) -> bool:
        following = _TOKEN.match(self._text, self._at)
        return self._keyword in _TYPED and following is not None and following["string"] is not None

    def _literal(self) -> Literal:
        if self._keyword in _TYPED and self._is_typed_literal():
            self._advance()
        kind, token = self._kind, self._token
        if self._keyword in ("+", "-"):
            self._advance()
            if self._kind != "number":
                raise self._unexpected("a number")
            value = _number(f"{token}{self._token}")
            self._advance()
            return Literal(value)
        if self._keyword == "NULL":
            raise ValueError("a comparison with NULL is never true: write IS NULL or IS NOT NULL")
        if self._keyword in ("TRUE", "FALSE"):
            literal = Literal(Decimal(int(self._keyword == "TRUE")))
        elif kind == "number":
            literal = Literal(_number(token))
        elif kind == "string":
            literal = Literal(_unescaped(token[1:-1]))
        elif kind == "hex" and len(token) % 2:
            literal = Literal(bytes.fromhex(token[2:-1]))
        else:
            raise self._unexpected("a number or a text in single quotes")
        self._advance()
        return literal


def _number(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:  # its exponent has more than 18 digits
        value = Decimal("Infinity")
    if not value.is_finite() or (value and abs(value.adjusted()) > _LARGEST_EXPONENT):
        raise ValueError(f"{text[:30]!r} is out of range: exponents go to {_LARGEST_EXPONENT}")
    return value


def _unescaped(text: str) -> str:
    return re.sub(r"''|\\(.)", lambda m: _ESCAPES.get(m[1], m[1]) if m[1] else "'", text, flags=re.DOTALL)
