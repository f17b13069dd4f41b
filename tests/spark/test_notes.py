"""The planner's notes in offsets."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.errors import OffsetFormatError
from headgate.spark import Notes

STORED: dict[str, Any] = {
    "actions": [{"id": "x", "refused": {"b": ["S", "r"]}, "tables": ["a"], "type": "y"}],
    "begun": {"epoch": 5, "full_restart": True, "gtid": ""},
    "begin": {"file": "f", "pos": 4, "server_uuid": "u", "created_s": 7},
    "behind": 3,
    "cuts": [{"file": "f", "gtid": "g"}],
    "initial": "i",
    "paused": True,
    "reads": {"a": 2, "b": 1},
    "server_uuid": "u",
    "settles": "",
    "sent": {"t": 7},
    "signal_table": "st",
    "taken": ["t"],
    "windows": {"a": [{"gtid": "g", "ts_us": 7}]},
}


def test_notes_come_back_from_their_json() -> None:
    assert Notes.from_dict(STORED).to_dict() == STORED
    assert Notes.from_dict({}) == Notes()


@pytest.mark.parametrize(
    "damage", [{"cuts": [{}]}, {"behind": "many"}, {"taken": 7}, {"begun": {"gtid": ""}}, {"windows": {"a": 7}}]
)
def test_damaged_notes(damage: dict[str, Any]) -> None:
    with pytest.raises(OffsetFormatError, match="damaged offset"):
        Notes.from_dict({**STORED, **damage})
