"""JSON differences against plain values; a real server's: tests/integration/values/test_partial_json.py."""

from __future__ import annotations

import contextlib
import copy
import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import Column
from headgate.columns import apply_json_differences
from tests.columns.cells import decode
from tests.columns.test_json import VALUES, document

REPLACE, INSERT, REMOVE = range(3)


def packed(size: int) -> bytes:
    return bytes([size]) if size < 251 else b"\xfc" + struct.pack("<H", size)


def difference(operation: int, path: str, value: Any = None, *, large: bool = False) -> bytes:
    out = bytes([operation]) + packed(len(path.encode())) + path.encode()
    if operation != REMOVE:
        data = document(value, large=large)
        out += packed(len(data)) + data
    return out


def text(data: bytes) -> Any:
    return decode(Column("c", "json"), "log", data)[0]


def changed(value: Any, *differences: bytes, large: bool = False) -> Any:
    return json.loads(text(apply_json_differences(document(value, large=large), b"".join(differences))))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("before", "differences", "after"),
    [
        ({"a": 1}, [(REPLACE, "$.a", "x")], {"a": "x"}),
        ({"a": 1}, [(REPLACE, "$", [1])], [1]),
        ({"a": [1, 2]}, [(REPLACE, "$.a[last]", 5), (REPLACE, "$.a[last-1]", 4)], {"a": [4, 5]}),
        ({"a": 1}, [(REPLACE, "$.a[0]", 2)], {"a": 2}),
        ({"a": {"b": 1}}, [(REPLACE, "$[0].a[last][0].b", 2)], {"a": {"b": 2}}),
        ([1, [2, 3]], [(INSERT, "$[1][1]", 9), (INSERT, "$[7]", 7)], [1, [2, 9, 3], 7]),
        ({}, [(INSERT, '$."a.b"', 1), (INSERT, '$."q\\"\\u00e9"', None), (INSERT, "$.é", True)],
         {"a.b": 1, 'q"é': None, "é": True}),
        ([1, 2, 3], [(REMOVE, "$[1]", None), (REMOVE, "$[last]", None)], [1]),
        ({"a": {"b": [1]}, "c": 1}, [(REMOVE, "$.a.b[0]", None), (REMOVE, "$.c", None)], {"a": {"b": []}}),
        ({"a": 1}, [(INSERT, "$.b", {"c": 1}), (INSERT, "$.b.d", -70000), (REPLACE, "$.b.c", 2**63)],
         {"a": 1, "b": {"c": 2**63, "d": -70000}}),
    ],
)  # fmt: skip
def test_operations(before: Any, differences: list[tuple[int, str, Any]], after: Any, large: bool) -> None:
    given_bytes = [difference(operation, path, value, large=large) for operation, path, value in differences]
    assert changed(before, *given_bytes, large=large) == after


def test_members_stand_in_mysqls_order() -> None:
    before = document({"b": 1, "aa": 2})
    after = apply_json_differences(before, difference(INSERT, "$.c", 3) + difference(INSERT, "$.ab", 4))
    assert text(after) == '{"b": 1, "c": 3, "aa": 2, "ab": 4}'


def test_no_bytes_are_null() -> None:
    assert text(apply_json_differences(b"", difference(REPLACE, "$", 1))) == "1"
    assert text(apply_json_differences(b"", b"")) == "null"


def places(value: Any, path: str = "$") -> list[str]:
    """The paths of all values but the root."""
    paths: list[str] = []
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        leg = f"[{key}]" if isinstance(value, list) else "." + json.dumps(key, ensure_ascii=False)
        paths += [path + leg, *places(child, path + leg)]
    return paths


def put(value: Any, path: str, new: Any) -> Any:
    """What a plain walk along the path makes of it."""
    value = holder = copy.deepcopy({"root": value})
    key: Any = "root"
    legs, rest = [], path[1:]
    while rest:
        if rest[0] == "[":
            number, _, rest = rest[1:].partition("]")
            legs.append(int(number))
        else:
            name, used = json.JSONDecoder(strict=False).raw_decode(rest[1:])
            legs.append(name)
            rest = rest[1 + used :]
    for leg in legs:
        holder, key = holder[key], leg
    holder[key] = new
    return value["root"]


@settings(deadline=None)
@given(VALUES, VALUES, st.booleans(), st.data())
def test_any_value_of_any_document_can_be_replaced(value: Any, new: Any, large: bool, data: st.DataObject) -> None:
    paths = places(value)
    if paths:
        path = data.draw(st.sampled_from(paths))
        assert changed(value, difference(REPLACE, path, new), large=large) == put(value, path, new)


@pytest.mark.parametrize(
    ("before", "wrong"),
    [
        ({"a": 1}, difference(REPLACE, "$.b", 1)),
        ({"a": 1}, difference(REPLACE, "$.a.b", 1)),
        ([1], difference(REPLACE, "$[1]", 1)),
        (1, difference(REPLACE, "$[1]", 1)),
        (1, difference(INSERT, "$[0]", 1)),
        ([1], difference(INSERT, "$.a", 1)),
        ([1], difference(REMOVE, "$[1]")),
        ({"a": 1}, difference(REMOVE, "$.b")),
        ([1], difference(REMOVE, "$")),
        ([1], difference(INSERT, "$", 1)),
        ([1], difference(REPLACE, "a", 1)),
        ([1], difference(REPLACE, "$.*", 1)[:-1]),
        ([1], difference(REPLACE, "$**", 1)),
        ([1], b"\x07\x01$\x02\x05\x01"),
        ([1], b"\x00\x05$"),
        ([1], b"\x00\x01$\x09\x05\x01"),
        ([1], b"\x00\x01\xff\x02\x04\x01"),
    ],
)
def test_what_does_not_fit_is_refused(before: Any, wrong: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        apply_json_differences(document(before), wrong)


@settings(deadline=None)
@given(VALUES, st.booleans(), st.binary(min_size=1, max_size=40), st.data())
def test_damage_gives_a_document_or_our_error(value: Any, large: bool, noise: bytes, data: st.DataObject) -> None:
    base = bytearray(document({"a": value, "b": [value]}, large=large))
    wanted = bytearray(difference(REPLACE, "$.a", value) + difference(INSERT, "$.b[0]", 1) + difference(REMOVE, "$.a"))
    target = data.draw(st.sampled_from([base, wanted]))
    at = data.draw(st.integers(0, len(target) - 1))
    target[at : at + len(noise)] = noise
    with contextlib.suppress(ValueError):
        apply_json_differences(bytes(base), bytes(wanted))


@pytest.mark.parametrize("path", ["$[99999999999999999999]", "$[last-99999999999999999999]"])
def test_indexes_that_no_array_has(path: str) -> None:
    """The error does not show the path, which may be of a masked column."""
    with pytest.raises(ValueError, match=r"^a path is not a JSON path$"):
        apply_json_differences(document([1]), difference(INSERT, path, 2))


def test_an_operation_that_has_no_place_shows_no_path() -> None:
    with pytest.raises(ValueError, match=r"^operation 2 cannot be applied at its path$"):
        apply_json_differences(document([1]), difference(REMOVE, "$"))


def test_a_key_that_is_no_json_text() -> None:
    with pytest.raises(ValueError, match="truncated or malformed"):
        apply_json_differences(document({}), difference(INSERT, r'$."\q"', 2))


def test_a_path_into_a_document_deeper_than_mysqls() -> None:
    value: list[Any] = [1]
    for _ in range(400):
        value = [value]
    with pytest.raises(ValueError, match="deeper than 100 levels"):
        apply_json_differences(document(value, large=True), difference(REPLACE, "$" + "[0]" * 390, 2))
