"""The control folder: nothing needs to be there, and what is there must make sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate.lake import Inbox
from headgate.spark import ControlFolder


def test_empty_folder(tmp_path: Path) -> None:
    control = ControlFolder(str(tmp_path / "not" / "there"))
    assert control.hint() is None
    assert control.finished() == frozenset()
    assert control.signals() == {}
    control.remove_signal("x")


def test_reads_what_the_lake_writes(tmp_path: Path) -> None:
    inbox, control = Inbox(str(tmp_path)), ControlFolder(str(tmp_path))
    inbox.write("hint.json", {"gtid": "", "server_uuid": "u", "file": "f", "pos": 4})
    inbox.write("finished.json", {"tables": ["a.b"]})
    inbox.write("signals/b.json", {"type": "resnapshot", "tables": ["a.*"]})
    inbox.write("signals/a.json", {"type": "redo", "chunk": {}})
    assert control.hint() == {"gtid": "", "server_uuid": "u", "file": "f", "pos": 4}
    assert control.finished() == {"a.b"}
    assert list(control.signals()) == ["a", "b"]
    control.remove_signal("a")
    assert list(control.signals()) == ["b"]
    assert inbox.names("signals") == ["signals/b.json"]


def test_half_written_files_do_not_exist_yet(tmp_path: Path) -> None:
    (tmp_path / "signals").mkdir()
    (tmp_path / "signals" / ".a.json.tmp123").write_text("{")
    (tmp_path / "signals" / ".a.json").write_text("{")
    assert ControlFolder(str(tmp_path)).signals() == {}


@pytest.mark.parametrize("text", ["{", "[]", "1", ""])
def test_files_that_are_not_objects_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "finished.json").write_text(text)
    with pytest.raises(ConfigError, match=r"finished\.json is not a JSON object"):
        ControlFolder(str(tmp_path)).finished()


def test_hint_with_something_missing_is_no_hint(tmp_path: Path) -> None:
    (tmp_path / "hint.json").write_text(json.dumps({"gtid": "", "file": "f"}))
    assert ControlFolder(str(tmp_path)).hint() is None


def test_trouble_is_told_and_forgotten(tmp_path: Path) -> None:
    inbox, control = Inbox(str(tmp_path)), ControlFolder(str(tmp_path))
    control.forget_trouble()
    for text in ("the server is gone", "the server is still gone"):
        control.tell_trouble(text, 7)
        assert inbox.read("trouble.json") == {"error": text, "since_us": 7}
    control.forget_trouble()
    assert list(tmp_path.iterdir()) == []
    ControlFolder(str(tmp_path / "not" / "there")).tell_trouble("nobody hears it", 7)


def test_that_there_is_nothing_to_do_is_told(tmp_path: Path) -> None:
    inbox, control = Inbox(str(tmp_path)), ControlFolder(str(tmp_path))
    for epoch in (5, 6):
        control.tell_waiting(epoch, 7, paused=epoch == 6)
        assert inbox.read("waiting.json") == {"epoch": epoch, "since_us": 7, "paused": epoch == 6}
    assert [file.name for file in tmp_path.iterdir()] == ["waiting.json"]
    ControlFolder(str(tmp_path / "not" / "there")).tell_waiting(1, 7, paused=False)


def test_files_of_any_kind(tmp_path: Path) -> None:
    (tmp_path / "7").write_text("v1\n{}\n")
    assert ControlFolder(str(tmp_path)).text("7") == "v1\n{}\n"
    assert ControlFolder(str(tmp_path)).text("8") is None
