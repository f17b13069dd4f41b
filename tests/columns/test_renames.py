"""Rules that give columns another name."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.columns import TableCodec, check_rules, unmasked_names, written_name
from headgate.errors import ChosenKeyError, UnsupportedError
from headgate.policies import ColumnRule, Policies, parse_rules
from tests.columns.cells import block

TABLE = TableDef(
    "d",
    "t",
    tuple(Column(name, "varchar", length=40, charset="utf8mb4", nullable=name != "id") for name in ("id", "Mail", "x")),
    (0,),
)


def policies(rules: object) -> Policies:
    return Policies(columns=parse_rules(rules))


def named(rules: object, table: TableDef = TABLE) -> list[tuple[str, str, str]]:
    codec = TableCodec(table, policies(rules))
    assert [field.name for field in codec.fields] == [column.name for column in codec.table.columns]
    return [(column.mysql_name, column.name, column.rule) for column in codec.table.columns]


def test_a_column_is_selected_by_its_name_and_decoded_under_the_new_one() -> None:
    codec = TableCodec(TABLE, policies({"d.t": {"id": {"rename": "Nr"}, "mail": {"rename": "email"}}}))
    assert codec.select_list == "`id`, `Mail`, `x`"
    assert [field.name for field in codec.fields] == ["Nr", "email", "x"]
    assert (codec.table.key_names, codec.original) == (("Nr",), TABLE)
    assert [array.to_pylist() for array in codec.from_text(block([(b"1", b"a", b"b")]))] == [["1"], ["a"], ["b"]]
    assert codec.table.columns[2] == TABLE.columns[2]


def test_names_and_values_have_rules_of_their_own() -> None:
    hidden = {"*.*": {"mail": {"truncate": 1}}}
    assert named({**hidden, "d.t": {"mail": {"rename": "e"}}})[1] == ("Mail", "e", "truncate:1"), "still hidden"
    assert named({"d.t": {"mail": {"rename": "e"}, "*ai*": "null"}})[1] == ("Mail", "e", "null"), "still renamed"
    assert named({**hidden, "d.t": {"mail": {"rename": "e", "rule": "null"}}})[1] == ("Mail", "e", "null")
    assert named({**hidden, "d.t": {"mail": {"rename": "e", "rule": "keep"}}})[1] == ("Mail", "e", "")
    assert named({"*.*": {"mail": {"rename": "e", "rule": "null"}}, "d.t": {"mail": "keep"}})[1] == ("Mail", "Mail", "")
    assert [one for one, *_ in named({"*.*": {"mail": {"rename": "e"}}, "d.t": {"mail": "exclude"}})] == ["id", "x"]
    twice = {"*.*": {"mail": "null"}, "d.*": {"mail": {"rename": "a"}}, "d.t": {"mail": {"rename": "b"}}}
    assert named(twice)[1] == ("Mail", "b", "null")


def test_names_are_exchanged() -> None:
    assert named({"d.t": {"mail": {"rename": "X"}, "x": {"rename": "mail"}}})[1:] == [
        ("Mail", "X", ""),
        ("x", "mail", ""),
    ]
    assert named({"d.t": {"mail": {"rename": "MAIL"}}})[1] == ("Mail", "MAIL", "")
    assert named({"d.t": {"mail": {"rename": "Mail"}}})[1] == ("Mail", "Mail", "")
    assert named({"d.t": {"mail": "exclude", "x": {"rename": "mail"}}})[1:] == [("x", "mail", "")]


@pytest.mark.parametrize("rules", [{"mail": {"rename": "ID"}}, {"mail": {"rename": "y"}, "x": {"rename": "Y"}}])
def test_two_columns_with_one_name(rules: object) -> None:
    for refuse in (
        lambda: TableCodec(TABLE, policies({"d.t": rules})),
        lambda: check_rules(policies({"d.t": rules}), [TABLE]),
    ):
        with pytest.raises(
            UnsupportedError, match=r"both \w+ and \w+ would be named '\w+': give one of them"
        ) as caught:
            refuse()
        assert caught.value.fields["table"] == "d.t"


def test_a_name_does_not_bring_an_excluded_column_back() -> None:
    rules = {"*.*": {"m*": "exclude"}, "d.t": {"mail": {"rename": "e"}}}
    assert [one for one, *_ in named(rules)] == ["id", "x"]
    with pytest.raises(UnsupportedError, match=r'\{ rename = "e", rule = "keep" \}'):
        check_rules(policies(rules), [TABLE])


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "a\0", "x" * 65])
def test_what_is_not_a_name(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a column's name"):
        parse_rules({"d.t": {"a": {"rename": name}}})


def test_refused_spellings() -> None:
    for rules, message in (
        ({"a*": {"rename": "b"}}, "may match several columns"),
        ({"a": {"rename": "b", "rule": "exclude"}}, "leaves the column out"),
        ({"a": {"rename": "b", "rule": {"rename": "c"}}}, "twice"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_rules({"d.t": rules})


def test_a_hidden_key_is_refused_under_a_new_name_too() -> None:
    with pytest.raises(UnsupportedError, match="a column of the key"):
        TableCodec(TABLE, policies({"d.t": {"id": {"rename": "n", "rule": "null"}}}))


def test_a_chosen_key_is_chosen_by_the_names_of_the_source() -> None:
    keyless = replace(TABLE, key=())
    rules = parse_rules({"d.t": {"mail": {"rename": "e"}}})
    chosen = Policies.make({"columns": rules}, {"d.t": {"key": ("mail", "x")}})
    table = TableCodec(keyless, chosen).table
    assert (table.key_names, table.has_chosen_key) == (("e", "x"), True)
    codec = TableCodec(keyless, chosen)
    with pytest.raises(ChosenKeyError, match="NULL in e"):
        codec.check_key([pa.array(["1"]), pa.array([None], pa.string()), pa.array(["b"])], None)


NAMES = st.sampled_from(["id", "mail", "x", "y", "X", "Mail", "new"])
VALUES = st.sampled_from(["keep", "null", {"truncate": 1}, {"text": "-"}])
RULES = st.one_of(
    VALUES,
    st.just("exclude"),
    NAMES.map(lambda name: {"rename": name}),
    st.tuples(NAMES, VALUES).map(lambda both: {"rename": both[0], "rule": both[1]}),
)
SECTIONS = st.lists(
    st.tuples(st.sampled_from(["*.*", "d.t", "d.u"]), st.sampled_from(["mail", "X", "m*", "*", "id"]), RULES),
    max_size=5,
)


MARKS = {"keep": "", "{'truncate': 1}": "truncate:1", "{'text': '-'}": "text:-"}


def model(sections: list[tuple[str, str, object]]) -> list[tuple[str, str, str]] | None:
    """The written columns by brute force: name and values of each column are decided apart. None: refused."""
    out = []
    for column in ("id", "Mail", "x"):
        name, values, hidden = column, "", False
        for table, pattern, rule in sections:
            if table == "d.u" or not fnmatchcase(column.lower(), pattern.lower()):
                continue
            renames = rule.get("rename") if isinstance(rule, dict) else None
            shown = rule.get("rule") if renames is not None else rule  # type: ignore[attr-defined]
            if shown is not None:
                values = {"keep": "", "{'truncate': 1}": "truncate:1", "{'text': '-'}": "text:-"}.get(
                    str(shown), str(shown)
                )
                hidden = shown != "keep"
            name = renames or (column if shown in ("keep", "exclude") else name)
        if column == "id" and hidden:
            return None
        if values != "exclude":
            out.append((column, name, values))
    return out if len({name.lower() for _, name, _ in out}) == len(out) else None


@given(SECTIONS)
def test_the_rules_are_those_of_the_model(sections: list[tuple[str, str, object]]) -> None:
    allowed = [one for one in sections if not (isinstance(one[2], dict) and "rename" in one[2] and "*" in one[1])]
    rules = tuple((table, ((column, ColumnRule.parse(rule)),)) for table, column, rule in allowed)
    expected = model(allowed)
    try:
        table = TableCodec(TABLE, Policies(columns=rules)).table
    except UnsupportedError:
        assert expected is None
        return
    assert [(column.mysql_name, column.name, column.rule) for column in table.columns] == expected
    assert [table.columns[index].mysql_name for index in table.key] == ["id"]
    for column in table.columns:  # as names of a statement become those of the target
        assert (
            written_name(Policies(columns=rules), "d", "t", column.mysql_name.upper())[0].lower() == column.name.lower()
        )


MASKED = {"*.*": {"e?": "hash", "b*": "null", "x": "exclude", "keep*": "keep", "kept": "keep", "n": {"rename": "m"}}}


@pytest.mark.parametrize(
    ("name", "new_name", "loses"),
    [
        ("e1", "mail", True),
        ("b", "mail", True),
        ("x", "mail", True),
        ("e1", "keeper", True),  # a rule with wildcards does not name it
        ("e1", "n", True),  # a rule about the name only
        ("e1", "KEPT", False),
        ("e1", "E2", False),
        ("e1", "b", False),
        ("e1", "x", False),
        ("mail", "other", False),
        ("kept", "mail", False),
    ],
)
def test_a_rename_takes_a_column_out_of_its_mask(name: str, new_name: str, loses: bool) -> None:
    assert unmasked_names(policies(MASKED), "d", "t", [("a", "c"), (name, new_name)]) == [new_name] * loses


def test_another_name_takes_the_columns_of_a_table_out_of_their_masks() -> None:
    """A rule for the column under the table's new name counts, be it ``keep``."""
    rules = policies({"d.t": {"a": "hash", "b": "null", "c": "exclude"}, "*.*": {"b": "keep"}, "e.*": {"c": "null"}})
    same = [(name, name) for name in "abcx"]
    assert unmasked_names(rules, "d", "t", same) == []
    assert unmasked_names(rules, "d", "t", same, ("d", "u")) == ["a", "c"]
    assert unmasked_names(rules, "d", "t", same, ("e", "t")) == ["a"]
