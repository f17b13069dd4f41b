from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import TablePatterns, as_globs, exact_pattern, exact_patterns, expressions
from headgate.errors import ConfigError

GLOBS = st.builds(
    "{}{}.{}".format,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["a", "*", "?_", "[ab]*"]),
    st.sampled_from(["a", "*", "?", "_*", "[!a]*", "[a_]b", "a.*", "[]", "[]a]*", "(a|b)"]),
)


@pytest.mark.parametrize(
    ("patterns", "db", "table", "wanted"),
    [
        (["shop.*"], "shop", "orders", True),
        (["shop.*"], "Shop", "orders", False),
        (["shop.*"], "shop2", "orders", False),
        (["shop.*", "!shop.tmp_*"], "shop", "tmp_1", False),
        (["shop.*", "!shop.tmp_*", "shop.tmp_keep"], "shop", "tmp_keep", True),
        (["!shop.tmp_*", "shop.*"], "shop", "tmp_1", True),
        (["!shop.tmp_*"], "shop", "orders", False),
        ([], "shop", "orders", False),
        (["*.orders"], "shop", "orders", True),
        (["s*.orders"], "shop", "x.orders", False),
        (["shop.x.*"], "shop", "x.orders", True),
        (["sho[pq].order?"], "shoq", "orders", True),
        (["*.*"], "mysql", "user", False),
        (["*.*", "a?b.*", "a.b.*"], "a.b", "t", False),
        (["sys.*", "information_schema.*", "performance_schema.*"], "sys", "version", False),
    ],
)
def test_matches(patterns: list[str], db: str, table: str, wanted: bool) -> None:
    assert TablePatterns(patterns).matches(db, table) is wanted


def test_patterns_without_a_match() -> None:
    patterns = TablePatterns(["shop.*", "shop.odrers", "!shop.tmp_*", "logs.*"])
    assert patterns.unmatched(["shop.orders", "shop.items"]) == ["shop.odrers", "logs.*"]
    assert patterns.unmatched([]) == ["shop.*", "shop.odrers", "logs.*"]


@pytest.mark.parametrize(
    ("patterns", "db", "possible"),
    [
        (["shop.orders"], "shop", True),
        (["shop.orders"], "logs", False),
        (["*.*", "!logs.*"], "logs", False),
        (["*.*", "!logs.*", "logs.kept"], "logs", True),
        (["logs.kept", "!logs.*"], "logs", False),
        (["*.*", "!logs.a*"], "logs", True),
        (["*.*", "!*.a*"], "logs", True),
        (["*.*"], "mysql", False),
        (["*.*", "a?b.*"], "a.b", False),
        ([], "shop", False),
    ],
)
def test_which_databases_may_hold_tables_that_are_meant(patterns: list[str], db: str, possible: bool) -> None:
    assert TablePatterns(patterns).may_match(db) is possible


def test_which_databases_are_named_although_their_tables_never_match() -> None:
    assert TablePatterns(["*.*"]).names_database("a.b")
    assert not TablePatterns(["a.*"]).names_database("a.b")
    assert not TablePatterns(["*.*", "!a?b.*"]).names_database("a.b")


@given(
    st.lists(st.from_regex(r"!?(\*|a|b|\?)\.(\*|\*\*|x|x\*|\?)", fullmatch=True), max_size=4),
    st.sampled_from(["a", "b", "c"]),
)
def test_a_database_without_a_possible_table_has_no_table_that_is_meant(patterns: list[str], db: str) -> None:
    known = TablePatterns(patterns)
    if not known.may_match(db):
        assert not any(known.matches(db, table) for table in ("x", "xy", "y", "yy"))


@pytest.mark.parametrize("pattern", ["shop", "", "!", ".orders", "shop.", "!shop", "!.x"])
def test_a_pattern_needs_a_database_and_a_table(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"db\.table"):
        TablePatterns([pattern])


def test_databases_are_known_where_no_pattern_hides_them() -> None:
    assert TablePatterns(["a.*", "b.x", "!c*.x", "a.y"]).literal_databases() == ["a", "b"]
    assert TablePatterns(["a.*", "b?.x"]).literal_databases() is None


def test_patterns_are_values() -> None:
    patterns = TablePatterns(["a.*", "!a.b"])
    assert pickle.loads(pickle.dumps(patterns)) == patterns == TablePatterns(("a.*", "!a.b"))
    assert hash(patterns) == hash(TablePatterns(["a.*", "!a.b"]))
    assert repr(patterns) == "TablePatterns(['a.*', '!a.b'])"
    assert patterns != TablePatterns(["!a.b", "a.*"])


@pytest.mark.parametrize("table", ["t", "t.u", "!t", "[t]", "t*", "t?"])
def test_exact_patterns_match_their_tables(table: str) -> None:
    patterns = exact_patterns(["d.other", f"d.{table}"])
    assert patterns.matches("d", table)
    assert patterns.matches("d", "other")
    assert not patterns.matches("d", "something")
    assert not patterns.matches("e", table)


@pytest.mark.parametrize("name", ["!d.t", "d*.t[1]", "[d].t?", "d].!t"])
def test_an_exact_pattern_matches_its_table_and_no_longer_name(name: str) -> None:
    db, _, table = name.partition(".")
    patterns = TablePatterns([exact_pattern(name)])
    assert patterns.matches(db, table)
    assert not patterns.matches(f"{db}x", table)
    assert not patterns.matches(db, f"{table}x")


def test_a_wildcard_selects_no_helper_of_a_schema_change() -> None:
    names = (
        "orders",
        "_orders_gho",
        "_orders_ghc",
        "_orders_del",
        "_orders_new",
        "_orders_old",
        "_orders",
        "orders_new",
    )

    def followed(*patterns: str) -> set[str]:
        selected = TablePatterns.following(patterns)
        return {name for name in names if selected.matches("d", name)}

    assert followed("d.*") == followed("*.*") == followed("d.?*") == {"orders", "_orders", "orders_new"}
    assert followed("d.*", "d._*") == {*names}
    assert followed("d.*", "d._orders_new", "!d.orders") == {"_orders", "_orders_new", "orders_new"}
    assert followed("d._orders_del") == {"_orders_del"}
    assert followed("d._orders_new", "d.*") == {"orders", "_orders", "_orders_new", "orders_new"}
    assert followed("d._orders_new", "d.*", "!d.*_new") == {"orders", "_orders"}


@given(st.lists(GLOBS, min_size=1, max_size=3), st.text("ab_.", min_size=1, max_size=4))
def test_regular_expressions_of_patterns_match_the_same_tables(patterns: list[str], name: str) -> None:
    """Those that a signal names: the first pattern selects."""
    patterns = [patterns[0].removeprefix("!"), *patterns[1:]]
    for table in (name, f"a.{name}", f"b_.{name}", "a.a"):
        db, dot, rest = table.partition(".")
        if dot and db and rest:
            matching = any(re.fullmatch(one, table) for one in expressions(patterns))
            assert matching == TablePatterns(patterns).matches(db, rest), (patterns, table, expressions(patterns))


@given(st.lists(GLOBS, min_size=1, max_size=4))
def test_expressions_are_shown_as_the_patterns_they_are_made_of(patterns: list[str]) -> None:
    patterns = [patterns[0].removeprefix("!"), *patterns[1:]]
    shown = [
        ", ".join([one, *(later for later in patterns[number:] if later.startswith("!"))])
        for number, one in enumerate(patterns)
        if not one.startswith("!")
    ]
    assert [as_globs(one) for one in expressions(patterns)] == shown


@given(
    st.text("ab.*?[]!^-&~|(){}+ $é", min_size=1, max_size=4), st.text("ab.*?[]!^-&~|(){}+ $é", min_size=1, max_size=6)
)
def test_expressions_of_all_characters_are_shown_as_patterns(db: str, table: str) -> None:
    pattern = f"a{db}.{table}"
    assert as_globs(expressions([pattern])[0]) == pattern


@pytest.mark.parametrize(
    "expression",
    [r"shop\.(a|b)", "shop.*", ".*", r"shop[.]orders", r"[ab]{2}\.x+", "", r"(?!x)", r"a\.b\Z)c", r"\w+\.\d"],
)
def test_expressions_of_users_stay_as_they_are(expression: str) -> None:
    assert as_globs(expression) == expression


@pytest.mark.parametrize(
    ("patterns", "problem"),
    [
        ([r"shop\\.orders"], "patterns are globs, not regular expressions: shop.orders"),
        (["orders"], "not a table pattern"),
        (["!shop.orders"], "!shop.orders only removes tables: name others before it"),
    ],
)
def test_patterns_that_no_signal_can_name(patterns: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        expressions(patterns)
