from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import TargetError
from headgate.lake import Inbox


@pytest.fixture(params=["path", "uri"])
def inbox(request: pytest.FixtureRequest, tmp_path: Path) -> Inbox:
    return Inbox(str(tmp_path / "inbox") if request.param == "path" else f"file://{tmp_path}/inbox")


def test_what_is_written_is_read(inbox: Inbox) -> None:
    value = {"type": "resnapshot", "tables": ["shop.*", "é"]}
    inbox.write("signals/a.json", value)
    assert inbox.read("signals/a.json") == value
    inbox.write("signals/a.json", {"again": 1})
    assert inbox.read("signals/a.json") == {"again": 1}


def test_nothing_there(inbox: Inbox) -> None:
    assert inbox.read("hint.json") is None
    assert inbox.names("signals") == []
    inbox.delete("signals/a.json")


def test_names_and_delete(inbox: Inbox) -> None:
    for name in ("b", "a"):
        inbox.write(f"signals/{name}.json", {})
    assert inbox.names("signals") == ["signals/a.json", "signals/b.json"]
    inbox.delete("signals/a.json")
    assert inbox.names("signals") == ["signals/b.json"]


def test_a_writer_that_died_leaves_nothing_to_read(tmp_path: Path) -> None:
    inbox = Inbox(str(tmp_path))
    inbox.write("signals/a.json", {})
    (tmp_path / "signals" / ".b.json.1234").write_text('{"half')
    assert inbox.names("signals") == ["signals/a.json"]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "hint.json").write_text("{")
    with pytest.raises(TargetError, match=r"hint\.json"):
        Inbox(str(tmp_path)).read("hint.json")
