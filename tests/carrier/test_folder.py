"""The control folder: nothing needs to be there, and what is there must make sense."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.carrier import (
    ControlFile,
    ControlFolder,
    End,
    Redo,
    Request,
    Resnapshot,
    Settle,
    SinkTables,
    Trouble,
    Waiting,
    parse_request,
    signal_path,
)
from headgate.errors import ConfigError, OffsetFormatError
from headgate.gtid import GtidSet
from headgate.offsets import ChunkSpec, Last

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
REDO = Redo(ChunkSpec("a.b", 3, ("1",), None), "altered", whole_table=True)
REQUESTS: st.SearchStrategy[Request] = st.one_of(
    st.builds(Redo, st.builds(ChunkSpec, st.text(), st.integers(0)), st.text(), st.booleans()),
    st.builds(Resnapshot, st.lists(st.text()).map(tuple), st.none() | st.text()),
    st.builds(
        Settle,
        st.integers(1, 99).map(lambda n: GtidSet.parse(f"{UUID}:1-{n}")),
        st.dictionaries(st.text(), st.lists(st.builds(Last, st.text(), st.integers(0, 1 << 60))).map(tuple)),
    ),
)


@pytest.fixture(params=["path", "uri"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> ControlFolder:
    return ControlFolder(str(tmp_path / "inbox") if request.param == "path" else f"file://{tmp_path}/inbox")


def test_the_batch_that_met_another_server(folder: ControlFolder) -> None:
    folder.record_moved(3, 5)
    assert folder.has_moved(3, 5)
    assert not folder.has_moved(4, 6)
    assert not folder.has_moved(3, 6), "of a lake that was removed in between"


def test_nothing_there(folder: ControlFolder) -> None:
    assert folder.read(ControlFile.HINT) is None
    assert folder.hint() is None
    assert folder.sink_tables() == SinkTables()
    assert folder.signals() == {}
    assert not folder.has_moved(3, 5)
    assert folder.trouble() is None
    assert folder.waiting() is None
    folder.remove_signal("x")
    folder.forget(ControlFile.TROUBLE)
    folder.forget_position()


def test_what_is_written_is_read(folder: ControlFolder) -> None:
    value = {"type": "log", "data": ["shop.*", "é"]}
    for one in (value, {"again": 1}):
        folder.write(signal_path("a"), one)
        assert folder.read(signal_path("a")) == one
    assert folder.text(signal_path("a")) == '{"again": 1}'
    assert folder.text("8") is None


def test_signals_come_in_order_and_requests_first(folder: ControlFolder) -> None:
    folder.write(signal_path("late"), {"type": "log", "submitted_us": 2})
    folder.write(signal_path("early"), {"type": "log", "submitted_us": 1})
    folder.send_request("z", Resnapshot(("a.*",)))
    folder.send_request("y", REDO)
    assert list(folder.signals()) == ["y", "z", "early", "late"]
    assert folder.requests() == {"y": REDO, "z": Resnapshot(("a.*",))}
    folder.remove_signal("y")
    assert list(folder.signals()) == ["z", "early", "late"]


def test_signals_without_a_time_come_as_they_were_written(tmp_path: Path) -> None:
    folder = ControlFolder(str(tmp_path))
    for name, seconds in (("a", 3), ("b", 2)):
        folder.write(signal_path(name), {"type": "log"})
        os.utime(tmp_path / signal_path(name), (seconds, seconds))
    times = {name: signal["submitted_us"] for name, signal in folder.signals().items()}
    assert [*times.items()] == [("b", 2_000_000), ("a", 3_000_000)]


def test_half_written_files_do_not_exist_yet(tmp_path: Path) -> None:
    (tmp_path / "signals").mkdir()
    for name in (".a.json.tmp123", ".a.json", ".json", "a"):
        (tmp_path / "signals" / name).write_text("{")
    assert ControlFolder(str(tmp_path)).signals() == {}


@pytest.mark.parametrize(
    "text", [b"{", b"[]", b"1", b"", b"\xff", b'{"id": "\\ud83d"}', pytest.param(b'{"id":' + b"[" * 100_000, id="deep")]
)
def test_files_that_are_not_objects_are_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "finished.json").write_bytes(text)
    (tmp_path / "trouble.json").write_bytes(text)
    (tmp_path / "signals").mkdir()
    (tmp_path / "signals" / "a.json").write_bytes(text)
    folder = ControlFolder(str(tmp_path))
    with pytest.raises(ConfigError, match=r"finished\.json is not a JSON object; remove"):
        folder.sink_tables()
    assert folder.trouble() is None, "it is for people only"
    assert folder.signals() == {"a": {"problem": f"{tmp_path}/signals/a.json is not a JSON object"}}
    assert folder.requests() == {}


@given(REQUESTS)
def test_requests_are_read_as_they_were_written(request: Request) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = ControlFolder(path)
        folder.send_request("x", request)
        assert folder.requests() == {"x": request}


def test_requests_that_cannot_be_read() -> None:
    assert parse_request({"type": "log"}) is None
    with pytest.raises(ConfigError, match="no list of table patterns"):
        parse_request({"type": "resnapshot"})
    for table, known in (("a.b", "a.b"), ("nonsense", None), (7, None)):
        with pytest.raises(OffsetFormatError) as caught:
            parse_request({"type": "redo", "table": table, "chunk": {}})
        assert caught.value.table == known


def test_where_the_sinks_are(folder: ControlFolder) -> None:
    end = End("g", "u", "binlog.000001", 4, 5)
    folder.record_hint(end)
    tables = SinkTables(
        frozenset({"b.b", "a.b", "c.b"}), frozenset({"b.b"}), frozenset({"c.b"}), frozenset({"a.b"}), True, 16
    )
    folder.record_tables(tables)
    assert folder.hint() == end
    position = {"gtid": "g", "server_uuid": "u", "file": "binlog.000001", "pos": 4}
    assert folder.read(ControlFile.HINT) == {**position, "created_s": 5}
    assert folder.sink_tables() == tables
    names = {"tables": ["a.b", "b.b", "c.b"], "stale": ["b.b"], "settling": ["c.b"]}
    assert folder.read(ControlFile.FINISHED) == {**names, "requested": ["a.b"], "paused": True, "slots": 16}
    folder.send_request("1", REDO)
    folder.write(signal_path("2"), {"type": "log"})
    folder.write(ControlFile.FORWARDED, {"offset": 4})
    folder.forget_position()
    assert folder.read(ControlFile.FORWARDED) == {"offset": 4}, "users' signals stay, also those of a topic"
    assert (folder.hint(), folder.sink_tables()) == (None, SinkTables(paused=True)), "a pause is a user's, too"
    assert list(folder.signals()) == ["2"]


def test_hint_with_something_missing_is_no_hint(tmp_path: Path) -> None:
    (tmp_path / "hint.json").write_text(json.dumps({"gtid": "", "file": "f"}))
    assert ControlFolder(str(tmp_path)).hint() is None


def test_what_the_planner_says(folder: ControlFolder) -> None:
    for text in ("the server is gone", "the server\nis still gone"):
        folder.record_state(Trouble(text, 7, 1.5))
        assert folder.trouble() == Trouble(" ".join(text.split()), 7, 1.5)
    assert folder.read(ControlFile.TROUBLE) == {"error": "the server\nis still gone", "since_us": 7, "seconds": 1.5}
    folder.write(ControlFile.TROUBLE, {"error": "of an older version", "since_us": 7})
    assert folder.trouble() == Trouble("of an older version", 7)
    folder.forget(ControlFile.TROUBLE)
    assert folder.trouble() is None
    for epoch in (5, 6):
        folder.record_state(Waiting(epoch, 7, paused=epoch == 6))
        assert folder.waiting() == Waiting(epoch, 7, paused=epoch == 6)


def test_where_nothing_can_be_written_nobody_hears_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = ControlFolder(str(tmp_path / "file" / "inbox"))
    folder.record_state(Trouble("nobody hears it", 7))
    assert folder.trouble() is None
    folder.forget(ControlFile.WAITING)
