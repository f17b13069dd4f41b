"""The planner's notes in offsets: those of earlier versions are read, and written as they were."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.errors import OffsetFormatError
from headgate.spark._notes import Notes

STORED: dict[str, Any] = {
    "actions": [{"id": "x", "refused": {"b": ["S", "r"]}, "tables": ["a"], "type": "y"}],
    "full_restart": True,
    "append": ["a"],
    "begin": {"file": "f", "pos": 4, "server_uuid": "u", "created_s": 7},
    "behind": 3,
    "cuts": [{"file": "f", "gtid": "g"}],
    "found": ["f"],
    "fresh": True,
    "initial": "i",
    "paused": True,
    "readings": {
        "a.a": {"blocking": False, "filter": None, "partial": False, "signals": [], "surrogate": None},
        "z.a": {"blocking": True, "filter": "f", "partial": True, "signals": ["s"], "surrogate": "c"},
    },
    "reads": {"a": 2, "b": 1},
    "redo": [
        {"hi": None, "lo": ["1"], "number": 1, "table": "a.b"},
        {"filter": "x", "hi": None, "lo": None, "number": 2, "table": "a.b"},
    ],
    "reread": ["b"],
    "server_uuid": "u",
    "settles": "",
    "signal_table": "st",
    "stopped": ["s"],
    "taken": ["t"],
}
"""As version 0.1.0 wrote them at commit b92da46."""


def test_notes_of_an_earlier_version() -> None:
    notes = Notes.from_dict(STORED)
    assert notes.to_dict() == {**STORED, "sent": {}}
    assert [chunk.filter for chunk in notes.redo] == [None, "x"]
    assert Notes.from_dict({}) == Notes()


@pytest.mark.parametrize("damage", [{"cuts": [{}]}, {"behind": "many"}, {"taken": 7}])
def test_damaged_notes(damage: dict[str, Any]) -> None:
    with pytest.raises(OffsetFormatError, match="damaged offset"):
        Notes.from_dict({**STORED, **damage})
