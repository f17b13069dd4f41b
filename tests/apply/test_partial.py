"""Images that leave columns out, folded, against a row-by-row model of the same log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.apply import _pieces as pieces_module
from headgate.apply._complete import Completed, FindRows, complete
from headgate.apply._images import absent_lists, align
from headgate.apply._partial import fold_partial
from headgate.apply._pieces import pieces
from headgate.carrier import Images, Part
from headgate.decide.actions import TableContent, UpsertPartial
from headgate.errors import DecodeError
from headgate.lake import Form
from tests.fix_carrier import FakeTable

TABLE = FakeTable(columns=(("k", "int"), ("a", "int"), ("b", "string"), ("j", "int")), key=("k", "j"))
COLUMNS = [name for name, _ in TABLE.columns]
FREE = ("a", "b")
Key = tuple[int, int]
Store = dict[Key, dict[str, Any]]
Image = tuple[str, Any, dict[str, Any], tuple[str, ...]]  # op, place, values, absent columns
KEYS = [(1, 0), (1, 1), (2, 0), (3, 0)]


def key_of(values: dict[str, Any]) -> Key:
    return values["k"], values["j"]


@st.composite
def logs(draw: st.DrawFn) -> tuple[Store, list[Image]]:
    """What the source held, and what it logged then: each image has what its row really held, or less."""
    absent = st.sampled_from([(), ("a",), ("b",), ("a", "b")])
    keys, value = st.sampled_from(KEYS), st.integers(0, 99)
    held: Store = {}
    for k, j in draw(st.sets(keys)):
        held[k, j] = {"k": k, "a": draw(value), "b": str(draw(value)), "j": j}
    before = {key: dict(row) for key, row in held.items()}
    images: list[Image] = []
    for pos in range(draw(st.integers(0, 15))):
        place = (10 * (pos // 3), pos)
        free = [key for key in KEYS if key not in held]
        kind = draw(st.sampled_from("cdum"))
        if kind == "c" and free:
            k, j = draw(st.sampled_from(free))
            held[k, j] = {"k": k, "a": draw(value), "b": str(draw(value)), "j": j}
            images.append(("c", place, held[k, j], ()))
        elif kind != "c" and held:
            row = held.pop(draw(st.sampled_from(sorted(held))))
            if kind == "d":
                images.append(("d", place, row, draw(absent)))
                continue
            new, left_out = dict(row), draw(absent)
            moves = kind == "m" and bool(free)
            if moves:
                new["k"], new["j"] = draw(st.sampled_from(free))
            for name in FREE:
                if name not in left_out:
                    new[name] = draw(value) if name == "a" else str(draw(value))
            if moves or draw(st.booleans()):  # the before-image of an update that keeps its key may be left out
                images.append(("b", place, row, draw(absent)))
            held[key_of(new)] = new
            images.append(("u", place, new, left_out))
    return before, images


def one_by_one(store: Store, images: list[Image]) -> Store:
    """The brute-force model."""
    store = {key: dict(row) for key, row in store.items()}
    before: dict[str, Any] | None = None
    paired = False
    for op, _, values, absent in images:
        key = key_of(values)
        if op == "b":
            before, paired = store.pop(key, None), True
            continue
        if op == "d":
            store.pop(key, None)
        elif not absent:
            store[key] = dict(values)
        else:
            base = before if paired else store.get(key)
            if base is not None:
                store[key] = {**base, **{name: v for name, v in values.items() if name not in absent}}
        paired = False
    return store


def as_table(images: list[Image]) -> pa.Table:
    rows = [(op, place, *(None if n in absent else values[n] for n in COLUMNS)) for op, place, values, absent in images]
    batch = TABLE.batch(5, rows)
    texts = [json.dumps(list(absent)) if absent else None for *_, absent in images]
    whole = batch.append_column("_absent", pa.array(texts, pa.string()))
    plain = pa.schema([f if f.name != "_gtid" else pa.field("_gtid", pa.string()) for f in whole.schema])
    return pa.Table.from_batches([align(whole, plain)])


def finder(store: Store, gone: Store | None = None) -> FindRows:
    """How a table with these rows is looked up; a marked one has those that are gone, too."""
    marked = {} if gone is None else {"_deleted": pa.bool_()}
    schema = pa.schema({**{name: as_table([]).schema.field(name).type for name in COLUMNS}, **marked})

    def find(keys: pa.Table) -> Iterator[tuple[pa.Table, Any]]:
        sought = [key_of(row) for row in keys.to_pylist()]
        assert len({*sought}) == len(sought)
        rows = {**(gone or {}), **store}
        at = [number for number, key in enumerate(sought) if key in rows]
        lines = [{**rows[sought[number]], "_deleted": sought[number] not in store} for number in at]
        for part in (slice(1), slice(1, 2), slice(2, None)):
            yield pa.Table.from_pylist(lines[part], schema), np.array(at[part], np.int64)

    return find


def whole(
    lines: pa.Table, find: FindRows, fills: dict[str, str] | None = None, form: Form = Form.PLAIN, since: int = 0
) -> Completed:
    """All parts of completed images, as one."""
    parts = [*complete(lines, find, TABLE.key, fills or {}, form, since=since)]
    images = pa.concat_tables([part.images for part in parts])
    return Completed(images, sum(part.ignored for part in parts), sum(part.moved for part in parts))


def applied(store: Store, lines: pa.Table) -> Store:
    """What the sink does with the folded lines: origins are looked up in the store as it was."""
    result = {key: dict(row) for key, row in store.items()}
    done = whole(lines, finder(store)).images.to_pylist()
    assert len({key_of(row) for row in done}) == len(done)
    for row in done:
        if row["_op"] == "d":
            result.pop(key_of(row), None)
        else:
            result[key_of(row)] = {name: row[name] for name in COLUMNS}
    return result


@settings(max_examples=300)
@given(logs(), st.data())
def test_the_fold_does_what_the_log_does_row_by_row(log: tuple[Store, list[Image]], data: st.DataObject) -> None:
    """Also in a target that lacks some rows of the source."""
    source, images = log
    missing = data.draw(st.sets(st.sampled_from(sorted(source)))) if source else set()
    target = {key: row for key, row in source.items() if key not in missing}
    shuffled = data.draw(st.permutations(range(len(images))))
    lines = fold_partial(as_table(images).take(pa.array(shuffled, pa.int64())), TABLE.key)
    assert applied(target, lines) == one_by_one(target, images)


@given(logs(), st.integers(2, 5), st.lists(st.integers(0, 15)))
def test_pieces_do_what_the_whole_batch_does(log: tuple[Store, list[Image]], count: int, cuts: list[int]) -> None:
    """Rows that get another key are in the piece of the row at the old one."""
    source, images = log
    part = Part(TABLE.name, "rows", "")
    ends = sorted({0, len(images), *(n for n in cuts if 0 < n < len(images) and images[n - 1][0] != "b")})
    for first, end in pairwise(ends):
        (batch,) = as_table(images[first:end]).combine_chunks().to_batches()
        part.add(Images.of("rows", TABLE.carried, batch))
    with patch.object(pieces_module, "PIECE_BYTES", max(1, part.size // count)):
        divided = [*pieces(UpsertPartial(TABLE.carried, [part]), as_table([]).schema)]
    assert len(divided) in (1, count, count + 1)
    lines = [fold_partial(piece, TABLE.key) for piece in divided]
    assert applied(source, pa.concat_tables(lines)) == one_by_one(source, images)


def marked_one_by_one(store: Store, images: list[Image], cut: int) -> dict[Key, tuple[dict[str, Any], bool]]:
    """The model where deleted rows stay: the values that each row last had, and whether it is deleted.

    :param cut: a TRUNCATE came before the image with this number.
    """
    live, gone = {key: dict(row) for key, row in store.items()}, dict[Key, dict[str, Any]]()
    for number, (op, _, values, _) in enumerate([*images, ("", None, {}, ())]):
        if number == cut:
            gone |= live
            live = {}
        if op in ("b", "d"):
            gone[key_of(values)] = live.pop(key_of(values))
        elif op:
            live[key_of(values)] = dict(values)
    return {key: (row, True) for key, row in gone.items()} | {key: (row, False) for key, row in live.items()}


@settings(max_examples=300)
@given(logs(), logs(), st.booleans(), st.data())
def test_deleted_rows_keep_their_last_values(
    log: tuple[Store, list[Image]], later: tuple[Store, list[Image]], truncates: bool, data: st.DataObject
) -> None:
    store, images = log
    cut, bound = len(images) + 1, None
    if truncates:
        cut, bound = len(images), (5, 1, 1000, 0)
        for op, (first, second), values, absent in _after_nothing(later[1]):
            images.append((op, (2000 + first, second), values, absent))
    shuffled = data.draw(st.permutations(range(len(images))))
    table = as_table(images).take(pa.array(shuffled, pa.int64()))
    result = {key: (row, truncates) for key, row in store.items()}  # a TRUNCATE marks the rows before the batch
    lines = fold_partial(table, TABLE.key, bound, Form.MARKED)
    completed = whole(lines, finder(store, {}), form=Form.MARKED)
    assert (completed.ignored, completed.moved) == (0, 0)
    for row in completed.images.to_pylist():
        result[key_of(row)] = ({name: row[name] for name in COLUMNS}, row["_deleted"])
    assert result == marked_one_by_one(store, images, cut)


def _after_nothing(images: list[Image]) -> list[Image]:
    """Those of these images that a log can have whose table is empty at first."""
    possible: list[Image] = []
    held: set[Key] = set()
    keeps_pair = True
    for number, (op, place, values, absent) in enumerate(images):
        key, paired = key_of(values), number > 0 and images[number - 1][0] == "b"
        if op == "c" and key not in held:
            held.add(key)
        elif op in ("b", "d") and key in held:
            keeps_pair = True
            held.discard(key)
        elif op in ("b", "d"):
            keeps_pair = False
            continue
        elif op == "u" and paired and keeps_pair and key not in held:
            held.add(key)
        elif op != "u" or paired or key not in held:
            continue
        possible.append((op, place, values, absent))
    return possible


def image(op: str, place: Any, k: int, a: int | None = None, b: str | None = None, absent: str = "") -> Image:
    return op, place, {"k": k, "a": a, "b": b, "j": 0}, tuple(absent)


def folded(*images: Image, truncated: int | None = None) -> list[tuple[Any, ...]]:
    """Key, op, ``a``, ``b``; what is absent, the origin, whether the key vanishes without it."""
    bound = None if truncated is None else (5, 1, truncated, 0)
    rows = []
    for line in fold_partial(as_table(list(images)), TABLE.key, bound).to_pylist():
        absent = line["_absent"]
        rest = () if absent is None else (absent["columns"], absent["old"]["k0"], absent["vanishes"])
        rows.append((line["k"], line["_op"], line["a"], line["b"], *rest))
    return sorted(rows)


def test_rows_of_epochs_that_lack_changes_count_as_missing() -> None:
    """A suspended table is read again: what an unread range holds is outdated, also for a row that leaves it."""
    empty = as_table([])
    rows = pa.table({"k": [1, 2], "a": [10, 20], "b": ["x", "y"], "j": [0, 0]}, empty.select(COLUMNS).schema)
    rows = rows.append_column("_seq", pa.array([(7, 0, 0, 0), (6, 0, 0, 0)], empty.schema.field("_seq").type))

    def find(keys: pa.Table) -> Iterator[tuple[pa.Table, Any]]:
        yield rows.take(pa.array([k - 1 for k in keys["k"].to_pylist()], pa.int64())), np.arange(len(keys))

    moved = [image("b", 1, 1, absent="ab"), image("u", 1, 8, absent="ab"),
             image("b", 2, 2, absent="ab"), image("u", 2, 9, absent="ab")]  # fmt: skip
    lines = fold_partial(as_table(moved), TABLE.key)
    for since, moved_rows in ((0, [(8, "x"), (9, "y")]), (6, [(8, "x"), (9, "y")]), (7, [(8, "x")]), (8, [])):
        done = whole(lines, find, since=since)
        assert sorted((row["k"], row["b"]) for row in done.images.to_pylist() if row["_op"] == "u") == moved_rows
        assert done.moved == done.ignored == 2 - len(moved_rows)


def test_keys_that_swap_carry_their_origins() -> None:
    swap = [(1, 9), (2, 1), (9, 2)]
    images = [
        part
        for pos, (old, new) in enumerate(swap)
        for part in (image("b", pos, old, absent="ab"), image("u", pos, new, absent="ab"))
    ]
    assert folded(*images) == [
        (1, "u", None, None, ["a", "b"], 2, True),
        (2, "u", None, None, ["a", "b"], 1, True),
        (9, "d", None, None),
    ]


def test_updates_of_a_row_are_joined_and_a_whole_image_ends_the_search() -> None:
    rows = folded(
        image("u", 1, 1, a=5, absent="b"),
        image("u", 2, 1, a=6, absent="b"),
        image("c", 1, 2, a=1, b="x"),
        image("u", 2, 2, b="y", absent="a"),
    )
    assert rows == [(1, "u", 6, None, ["b"], 1, False), (2, "u", 1, "y")]


def test_an_update_of_what_the_batch_deleted_is_ignored() -> None:
    assert folded(image("d", 1, 1, absent="ab"), image("u", 2, 1, a=5, absent="b")) == [(1, "d", 5, None)]


def test_a_row_that_was_read_wins_whole_and_a_truncate_leaves_nothing_to_build_on() -> None:
    assert folded(image("r", 0, 1, a=7, b="r"), image("u", 9, 1, a=5, absent="b")) == [(1, "r", 7, "r")]
    assert folded(image("c", 1, 1, a=1, b="x"), image("u", 9, 1, a=5, absent="b"), truncated=4) == [
        (1, "u", 5, None, ["b"], 1, False)
    ]


def completed(*images: Image, store: Store, gone: Store | None = None) -> tuple[list[tuple[Any, ...]], int, int]:
    """Key, op, ``a``, ``b``, of a marked table whether the row is deleted; ignored updates, and those of moved keys."""
    form = Form.PLAIN if gone is None else Form.MARKED
    lines = fold_partial(as_table(list(images)), TABLE.key, None, form)
    done = whole(lines, finder(store, gone), form=form)
    marks = [] if gone is None else ["_deleted"]
    rows = [tuple(row[name] for name in ("k", "_op", "a", "b", *marks)) for row in done.images.to_pylist()]
    return sorted(rows), done.ignored, done.moved


ONE: Store = {(1, 0): {"k": 1, "a": 7, "b": "x", "j": 0}}


def test_an_update_of_a_row_that_the_table_lacks_is_ignored() -> None:
    moved = (image("b", 1, 1, absent="ab"), image("u", 1, 2, a=5, absent="b"))
    assert completed(*moved, store=ONE) == ([(1, "d", None, None), (2, "u", 5, "x")], 0, 0)
    assert completed(*moved, store={}) == ([(1, "d", None, None)], 1, 1)
    assert completed(image("u", 1, 1, a=5, absent="b"), store={}) == ([], 1, 0)
    cleared = (image("d", 0, 2, absent="ab"), *moved)
    assert completed(*cleared, store={}) == ([(1, "d", None, None), (2, "d", 5, None)], 1, 1)


def test_an_ignored_update_has_the_table_read_again_if_no_later_chunk_has_its_row() -> None:
    moved = (image("b", 1, 1, absent="ab"), image("u", 1, 2, a=5, absent="b"))
    same, all_of_it = (image("u", 1, 1, a=5, absent="b"),), (image("u", 1, 1, a=5, b="x"),)
    needs = {
        TableContent.ALL: [True, True, False],
        TableContent.SOME: [True, False, False],
        TableContent.SOME_OF_ANY_KEY: [True, True, False],
        TableContent.UNKNOWN: [False, False, False],
    }
    assert [*needs] == [*TableContent]
    for content, expected in needs.items():
        done = [whole(fold_partial(as_table([*images]), TABLE.key), finder({})) for images in (moved, same, all_of_it)]
        assert [one.reread_reason(content) is not None for one in done] == expected


def test_a_deleted_row_whose_values_are_unknown_keeps_those_that_the_table_has() -> None:
    deletion = image("d", 1, 1, absent="ab")
    assert completed(deletion, store=ONE, gone={}) == ([(1, "u", 7, "x", True)], 0, 0)
    assert completed(deletion, store={}, gone=ONE) == ([(1, "u", 7, "x", True)], 1, 0)
    assert completed(deletion, store={}, gone={}) == ([], 1, 0)
    update = image("u", 1, 1, a=5, absent="b")
    assert completed(update, store={}, gone=ONE) == ([], 1, 0)


def test_a_column_that_the_table_did_not_have_is_filled() -> None:
    lines = fold_partial(as_table([image("u", 1, 1, a=5, absent="b")]), TABLE.key)
    rows, numbers = next(iter(finder(ONE)(pa.table({"k": [1], "j": [0]}))))
    narrow = rows.drop_columns(["b"])
    for fills, value in (({}, None), ({"b": "new"}, "new")):
        done = whole(lines, lambda _keys: [(narrow, numbers)], fills)
        assert done.images["b"].to_pylist() == [value]


def test_rows_of_small_images_may_have_more_bytes_than_an_arrow_array() -> None:
    """2.25 GiB in nine rows: each is written before the next one is read."""
    images = [image("u", k, k, a=5, absent="b") for k in range(9)]
    schema = as_table([]).select(COLUMNS).schema
    text = pa.array(["x" * (1 << 28)])

    def find(keys: pa.Table) -> Iterator[tuple[pa.Table, Any]]:
        for number, k in enumerate(keys["k"].to_pylist()):
            yield pa.table([pa.array([k], pa.int32()), [1], text, [0]], schema=schema), np.array([number])

    parts = complete(fold_partial(as_table(images), TABLE.key), find, TABLE.key, {})
    assert [(part.images["k"].to_pylist(), pc.binary_length(part.images["b"]).to_pylist()) for part in parts] == [
        *(([k], [1 << 28]) for k in range(9)),
        ([], []),
    ]


def test_a_lonely_before_image_is_an_error() -> None:
    for images in ([image("b", 1, 1, absent="ab")], [image("b", 1, 1, absent="ab"), image("u", 2, 1, absent="a")]):
        with pytest.raises(DecodeError, match="before-image"):
            fold_partial(as_table(images), TABLE.key)


def test_absent_columns_as_lists() -> None:
    texts = pa.array(['["a"]', None, '["a","b"]', '["a"]'])
    for absent in (texts, texts.dictionary_encode()):
        assert absent_lists(absent).to_pylist() == [["a"], None, ["a", "b"], ["a"]]
    assert absent_lists(pa.nulls(2, pa.string())).to_pylist() == [None, None]
