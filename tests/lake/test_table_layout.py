"""Properties and clustering columns of a table as the configuration wants them, without Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import DateType, LongType, StringType, StructType

from headgate.delta import clustered, write_files
from headgate.lake import DeltaPath, TableLayout, begin_successor, take_over
from tests.delta.commits import commit
from tests.lake.test_delta_path import DEFAULTS, session
from tests.logged import logged_here

COLUMNS = StructType().add("id", LongType()).add("day", DateType()).add("note", StringType())
INDEXED = "delta.dataSkippingNumIndexedCols"


def created(
    folder: Path, layout: TableLayout, columns: StructType = COLUMNS, settings: Mapping[str, str] | None = None
) -> DeltaPath:
    delta = DeltaPath(session(**(settings or {})), str(folder / "t"))
    delta.create(columns, {"headgate.table": "shop.t"}, layout)
    return delta


def layout_of(delta: DeltaPath) -> tuple[dict[str, str], tuple[str, ...]]:
    """The properties that a user may set, and the clustering columns."""
    table = delta.snapshot()
    kept = {name: value for name, value in table.properties.items() if name in (INDEXED, "team", "tier", "other")}
    return kept, table.clustering


def test_a_table_has_its_layout_from_the_first_version_on(tmp_path: Path) -> None:
    layout = TableLayout({"team": "sales"}, ("day",))
    delta = created(tmp_path, layout)
    assert layout_of(delta) == ({"team": "sales"}, ("day",))
    assert not delta.has_other_layout(layout)
    delta.arrange(layout)
    assert delta.version() == 0, "no commit"
    assert DeltaTable(delta.path).metadata().configuration["team"] == "sales"


def test_changes_are_followed_and_properties_of_others_stay(tmp_path: Path) -> None:
    delta = created(tmp_path, TableLayout({"team": "sales", "tier": "1"}))
    delta.set_properties({"other": "kept"})
    for layout, expected in (
        (TableLayout({"team": "stock"}, ("note", "id")), ({"team": "stock", "other": "kept"}, ("note", "id"))),
        (TableLayout({"team": "stock"}, ("id",)), ({"team": "stock", "other": "kept"}, ("id",))),
        (TableLayout(), ({"other": "kept"}, ())),
        (TableLayout(), ({"other": "kept"}, ())),
    ):
        before = delta.version()
        changes = delta.has_other_layout(layout)
        delta.arrange(layout)
        assert layout_of(delta) == expected
        assert delta.version() == before + changes, "one commit or none"
        assert not delta.has_other_layout(layout)
    assert "headgate.properties" not in delta.snapshot().properties


def test_statistics_go_as_far_as_the_last_clustering_column(tmp_path: Path) -> None:
    wide = StructType()
    for number in range(40):
        wide = wide.add(f"c{number}", LongType())
    delta = created(tmp_path, TableLayout({}, ("c35",)), wide)
    assert layout_of(delta) == ({INDEXED: "36"}, ("c35",))
    delta.arrange(TableLayout({}, ("c3",)))
    assert layout_of(delta) == ({}, ("c3",)), "Delta's default is enough"
    delta.arrange(TableLayout({INDEXED: "2"}, ("c3",)))
    assert layout_of(delta) == ({INDEXED: "4"}, ("c3",))
    delta.arrange(TableLayout({INDEXED: "-1"}, ("c39",)))
    assert layout_of(delta) == ({INDEXED: "-1"}, ("c39",))


def test_a_setting_of_the_session_counts_too(tmp_path: Path) -> None:
    layout = TableLayout({}, ("note",))
    delta = created(tmp_path, layout, settings={f"{DEFAULTS}dataSkippingNumIndexedCols": "1"})
    assert layout_of(delta) == ({}, ("note",)), "Delta's default is enough, the session's setting is not"
    assert not delta.has_other_layout(layout)


def test_columns_that_a_table_cannot_be_clustered_by_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    delta = created(tmp_path, TableLayout({INDEXED: "1"}, ("id", "later")))
    assert layout_of(delta) == ({INDEXED: "1"}, ("id",))
    rows = pa.table({"id": [1], "day": [None]}, pa.schema([("id", pa.int64()), ("day", pa.date32())]))
    actions = list(write_files(rows.to_batches(), delta.path, rows.schema, "snappy", leaves=1))
    commit(delta.path, delta.snapshot(files=True), actions, "WRITE", {}, blind=True)
    delta.snapshot(files=True)
    layout = TableLayout({}, ("day", "id"))
    with caplog.at_level(logging.WARNING, "headgate"):
        delta.arrange(layout)
    assert layout_of(delta) == ({}, ("id",)), "the file has no statistics of the other one"
    assert "is not clustered by day: it lacks this column, or a file has" in logged_here(caplog)[-1].getMessage()
    assert not delta.has_other_layout(layout), "the same is not tried again and again"


def test_what_the_configuration_set_is_noted(tmp_path: Path) -> None:
    properties = created(tmp_path, TableLayout({"team": "x", "tier": "y"})).snapshot().properties
    assert json.loads(properties["headgate.properties"]) == ["team", "tier"]


def test_clustering_by_another_program_stays(tmp_path: Path) -> None:
    delta = created(tmp_path, TableLayout({}, ("day",)))
    delta.arrange(TableLayout())
    assert layout_of(delta) == ({}, ()), "the configuration had it"
    delta._change("CLUSTER BY", {}, lambda table: clustered(table, ("note",)))
    for layout in (TableLayout(), TableLayout({"team": "sales"}), TableLayout()):
        delta.arrange(layout)
        assert layout_of(delta) == (layout.properties, ("note",))
    delta.arrange(TableLayout({}, ("id",)))
    assert layout_of(delta) == ({}, ("id",)), "the configuration comes first"


@pytest.mark.parametrize(
    ("before", "after", "clustering"),
    [
        (TableLayout(), TableLayout(), ("note",)),
        (TableLayout({"team": "x"}), TableLayout({"team": "y"}), ("note",)),
        (TableLayout(), TableLayout({}, ("id",)), ("id",)),
    ],
)
def test_a_table_that_is_read_again_stays_clustered_by_another_program(
    tmp_path: Path, before: TableLayout, after: TableLayout, clustering: tuple[str, ...]
) -> None:
    delta = created(tmp_path, before)
    delta._change("CLUSTER BY", {}, lambda table: clustered(table, ("note",)))
    successor = begin_successor(delta, 2)
    successor.create(COLUMNS, {"headgate.table": "shop.t", "headgate.key": "[]"}, after)
    for _ in range(2):
        take_over(delta, successor)
        assert layout_of(delta) == (after.properties, clustering)
    assert delta.version() == 2, "one commit"


def test_a_table_that_is_read_again_loses_the_clustering_of_the_configuration(tmp_path: Path) -> None:
    delta = created(tmp_path, TableLayout({}, ("day",)))
    successor = begin_successor(delta, 2)
    successor.create(COLUMNS, {"headgate.table": "shop.t"}, TableLayout())
    take_over(delta, successor)
    assert layout_of(delta) == ({}, ())


def test_what_a_table_that_is_read_again_loses_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    delta = created(tmp_path, TableLayout())
    delta._change("CLUSTER BY", {}, lambda table: clustered(table, ("note", "id")))
    delta.set_properties({"delta.checkpointInterval": "7"})
    successor = begin_successor(delta, 2)
    successor.create(StructType([one for one in COLUMNS.fields if one.name != "note"]), {"headgate.table": "shop.t"})
    with caplog.at_level(logging.WARNING, "headgate"):
        take_over(delta, successor)
        take_over(delta, successor)
    assert layout_of(delta)[1] == ("id",)
    texts = [record.getMessage() for record in logged_here(caplog)]
    assert [text.removeprefix(delta.path) for text in texts] == [
        " was read again, and lost properties that another program had set: ['delta.checkpointInterval']",
        " was read again, and is no longer clustered by note",
    ]


def test_a_table_that_is_read_again_keeps_properties_of_others(tmp_path: Path) -> None:
    delta = created(tmp_path, TableLayout({"team": "sales"}, ("day",)))
    delta.set_properties({"other": "kept", "delta.checkpointInterval": "7"})
    successor = begin_successor(delta, 2)
    successor.create(COLUMNS, {"headgate.table": "shop.t"}, TableLayout({"tier": "1"}))
    expected = {**successor.snapshot().properties, "other": "kept"}
    for _ in range(2):
        take_over(delta, successor)
        assert delta.snapshot().properties == expected
    assert delta.version() == 2, "one commit"
