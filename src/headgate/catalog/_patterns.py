"""Selection of tables by glob patterns on ``db.table``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from headgate.errors import ConfigError
from headgate.names import lower_name

__all__ = [
    "HELPERS_LEFT_OUT",
    "SYSTEM_SCHEMAS",
    "TablePatterns",
    "as_globs",
    "exact_pattern",
    "exact_patterns",
    "expressions",
]

SYSTEM_SCHEMAS = ("information_schema", "mysql", "performance_schema", "sys")
"""Never matched, whatever the patterns are."""

_WILD = frozenset("*?[")
_HELPERS = ("_*_gh[oc]", "_*_del", "_*_new", "_*_old")
"""Names of the tables that gh-ost (``go/base/context.go``: gho, ghc, del) and pt-online-schema-change (new, old) make
while they change another one, and that are renamed or dropped at the end."""
HELPERS_LEFT_OUT = (
    "named as gh-ost or pt-online-schema-change names its tables; to follow one, name it in source.tables"
)
"""Why a pipeline leaves out tables that its wildcards match, and what to do."""
_ANY = re.compile(translate("*"))


class TablePatterns:
    """Globs (``*``, ``?``, ``[…]``) on ``db.table``, case-sensitive; ``!`` removes; the last match wins.

    The first dot divides a pattern. The part before it is matched against the database's name alone, so ``*`` never
    spans both. A name ``db.table`` is divided there, too, so databases with a dot in their name have no matches: their
    tables would be taken for those of others.

    :raises ConfigError: a pattern without a dot, or with an empty part.
    """

    __slots__ = ("_rules", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns: tuple[str, ...] = tuple(patterns)
        self._rules = [_rule(pattern) for pattern in self.patterns]

    @classmethod
    def following(cls, patterns: Iterable[str]) -> TablePatterns:
        """Return the patterns of the tables that a pipeline follows.

        A pattern whose table begins with a wildcard selects no helper of gh-ost or pt-online-schema-change
        (``_orders_gho``). One that begins with ``_`` does, behind it; one that names the table does anywhere.
        """
        listed = cls(patterns)
        rules = [rule for pattern in listed.patterns for rule in (pattern, *_helpers_of(pattern))]
        named = [name for name in listed.patterns if _WILD.isdisjoint(name) and listed.matches(*name.split(".", 1))]
        return cls([*rules, *(name for name in named if name.split(".", 1)[1].startswith("_"))])

    def unmatched(self, names: Iterable[str]) -> list[str]:
        """Return the patterns that should select tables, and match none of these names ``db.table``."""
        parts = [name.split(".", 1) for name in names]
        selecting = ((one, TablePatterns([one])) for one in self.patterns if not one.startswith("!"))
        return [one for one, alone in selecting if not any(alone.matches(db, table) for db, table in parts)]

    def left_out(self, names: Iterable[str]) -> list[str]:
        """Return those of the names ``db.table`` that these patterns select and a pipeline with them does not follow:
        see :meth:`following`.
        """
        followed = TablePatterns.following(self.patterns)
        parts = ((name, *name.split(".", 1)) for name in names)
        return [name for name, db, table in parts if self.matches(db, table) and not followed.matches(db, table)]

    def matches(self, db: str, table: str) -> bool:
        """Return whether the table is selected. Tables of MySQL's system schemas never are."""
        if lower_name(db) in SYSTEM_SCHEMAS or "." in db:
            return False
        for wanted, db_glob, table_glob in reversed(self._rules):
            if db_glob.match(db) and table_glob.match(table):
                return wanted
        return False

    def may_match(self, db: str) -> bool:
        """Return whether a table of this database could be selected."""
        return lower_name(db) not in SYSTEM_SCHEMAS and "." not in db and self.names_database(db)

    def names_database(self, db: str) -> bool:
        """Return whether a pattern selects tables of this database, even if its name rules it out."""
        for wanted, db_glob, table_glob in reversed(self._rules):
            if db_glob.match(db) and (wanted or table_glob == _ANY):
                return wanted
        return False

    def literal_databases(self) -> list[str] | None:
        """Return the databases that can hold matches; None if a selecting pattern has a wildcard before the dot."""
        databases: list[str] = []
        for pattern in self.patterns:
            if pattern.startswith("!"):
                continue
            db = pattern.partition(".")[0]
            if _WILD.intersection(db):
                return None
            if db not in databases:
                databases.append(db)
        return databases

    def __repr__(self) -> str:
        return f"TablePatterns({list(self.patterns)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TablePatterns) and self.patterns == other.patterns

    def __hash__(self) -> int:
        return hash(self.patterns)

    def __reduce__(self) -> tuple[type[TablePatterns], tuple[tuple[str, ...]]]:
        return TablePatterns, (self.patterns,)


def exact_pattern(name: str) -> str:
    """Return a pattern that matches only ``db.table``. The database's name ends at the first dot.

    A ``!`` at the beginning cannot be escaped: any letter matches it.
    """
    escaped = re.sub(r"[*?\[]", r"[\g<0>]", name)
    return f"?{escaped[1:]}" if escaped.startswith("!") else escaped


def exact_patterns(names: Iterable[str]) -> TablePatterns:
    """Return patterns that match these ``db.table``; see :func:`exact_pattern`."""
    return TablePatterns(exact_pattern(name) for name in sorted(names))


def expressions(patterns: Iterable[str]) -> list[str]:
    """Return regular expressions that match the whole names ``db.table`` which these patterns select: signals have
    Debezium's form. A pattern that removes tables does so from those before it.

    :raises ConfigError: not a pattern, or none selects tables.
    """
    selecting: list[str] = []
    for pattern in patterns:
        if "\\" in pattern:
            raise ConfigError(f"{pattern!r}: patterns are globs, not regular expressions: shop.orders, shop.order_*")
        _rule(pattern)
        db, _, table = pattern.removeprefix("!").partition(".")
        expression = rf"{_expression(db, '[^.]')}\.{_expression(table, '.')}"
        if not pattern.startswith("!"):
            selecting.append(expression)
        elif not selecting:
            raise ConfigError(f"{pattern} only removes tables: name others before it, such as 'shop.*'")
        else:
            selecting = [rf"(?!{expression}\Z){one}" for one in selecting]
    return selecting


_PARTS = re.compile(r"\[(?P<not>!?)(?P<set>\]?[^\]]+|\])\]|(?P<wild>[*?])|(?P<plain>.)", re.DOTALL)


def _expression(glob: str, any_character: str) -> str:
    """Return a glob as a regular expression."""
    wild = {"*": f"{any_character}*", "?": any_character}
    return "".join(
        f"[{'^' if part['not'] else ''}{_set(part['set'])}]"
        if part["set"] is not None
        else wild[part["wild"]]
        if part["wild"]
        else re.escape(part["plain"])
        for part in _PARTS.finditer(glob)
    )


def _set(characters: str) -> str:
    return re.sub(r"[\[\]^&~|]", r"\\\g<0>", characters)


def as_globs(expression: str) -> str:
    """Return an expression of :func:`expressions` as the patterns that it was made of, for messages:
    ``shop.*, !shop.tmp_*``. Any other expression, such as a user's, stays as it is.
    """
    *removing, selecting = expression.split(r"\Z)")
    globs = [_glob(selecting), *(f"!{_glob(one.removeprefix('(?!'))}" for one in reversed(removing))]
    try:
        return ", ".join(globs) if expressions(globs) == [expression] else expression
    except ConfigError:  # no patterns
        return expression


def _glob(expression: str) -> str:
    """Return the pattern if the expression was made of one, else any text."""
    db, dot, table = expression.partition(r"\.")
    return f"{_NAME_PARTS[0].sub(_glob_part, db)}{dot[1:]}{_NAME_PARTS[1].sub(_glob_part, table)}"


_NAME_PARTS = [
    re.compile(rf"(?P<wild>{any_character}\*?)|\[(?P<not>\^?)(?P<set>(?:\\.|[^\]\\])+)\]|\\(?P<escaped>.)", re.DOTALL)
    for any_character in (r"\[\^\.\]", r"\.")
]
"""Those of a database's name and of a table's that are not the character itself."""
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _glob_part(part: re.Match[str]) -> str:
    if part["wild"]:
        return "*" if part["wild"].endswith("*") else "?"
    return part["escaped"] or f"[{'!' if part['not'] else ''}{_ESCAPED.sub(lambda one: one[1], part['set'])}]"


def _helpers_of(pattern: str) -> list[str]:
    """Return patterns that remove the helpers which this one selects although it does not name them."""
    db, _, table = pattern.partition(".")
    return [] if pattern.startswith("!") or table[:1] not in _WILD else [f"!{db}.{helper}" for helper in _HELPERS]


def _rule(pattern: str) -> tuple[bool, re.Pattern[str], re.Pattern[str]]:
    wanted = not pattern.startswith("!")
    db, dot, table = pattern.removeprefix("!").partition(".")
    if not (db and dot and table):
        raise ConfigError(
            f"not a table pattern: {pattern!r}; expected db.table, with * ? [] as wildcards and ! to remove"
        )
    return wanted, re.compile(translate(db)), re.compile(translate(table))
