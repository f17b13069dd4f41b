"""The state folder of a relay is its alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import ConfigError, ConnectError
from headgate.gtid import GtidSet
from headgate.relay import Relay, RelayConfig
from tests.relay.serving import PERSON, physical


def relay(folder: Path) -> Relay:
    return Relay(RelayConfig((physical(1, "person", PERSON),), state=folder), lambda _: GtidSet())


def test_two_relays_do_not_write_into_one_folder(tmp_path: Path) -> None:
    first = relay(tmp_path)
    with pytest.raises(ConfigError, match=r"is in use by process \d+: stop it, or choose another folder"):
        relay(tmp_path)
    with pytest.raises(ConnectError), first:  # nothing listens there
        raise AssertionError("it began")
    relay(tmp_path)


def test_one_that_cannot_be_put_together_leaves_the_folder(tmp_path: Path) -> None:
    state = tmp_path / "partition-1.json"
    state.write_text("no JSON")
    with pytest.raises(ConfigError, match="cannot be read") as kept:
        relay(tmp_path)
    state.unlink()
    relay(tmp_path)
    assert kept.tb is not None  # what failed is still there, but not its lock


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/state cannot be written: Not a directory"):
        relay(tmp_path / "file" / "state")
