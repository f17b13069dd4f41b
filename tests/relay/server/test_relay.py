"""The state folder of a relay: it is its alone, and what of it counts when the relay begins elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ConfigError, ConnectError, ScnNotFoundError, ServerBehindError
from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings
from headgate.relay.archive import LogFeeder
from headgate.relay.databus import StreamPosition
from headgate.relay.server import EventBuffer, Relay, RelayConfig, _feeder
from headgate.replication import Idle
from headgate.retrying import Failures, RetryPolicy
from headgate_testing import wait_until
from tests.relay.server.rows import UUID
from tests.relay.server.serving import PATIENCE_SECONDS, PERSON, PET, physical
from tests.relay.server.test_buffer import MEMORY, put


def relay(folder: Path) -> Relay:
    return Relay(RelayConfig(physical=(physical(1, "person", PERSON),), state=folder), lambda _: GtidSet())


def test_two_relays_do_not_write_into_one_folder(tmp_path: Path) -> None:
    first = relay(tmp_path)
    with pytest.raises(ConfigError, match=r"is in use by process \d+: stop it, or choose another folder"):
        relay(tmp_path)
    with first:  # nothing listens there, which may change
        assert first.status()[0] == "ERROR_RETRYING"
    relay(tmp_path).close()


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


GENERATION = 1 << 48


@pytest.mark.parametrize(
    ("kind", "base", "served"),
    [
        ("relay-generated", 0, 500), ("gtid-generation", GENERATION, GENERATION + 500),
        ("gtid-generation", GENERATION, 2 * GENERATION + 7), ("application", 0, 12),
    ],
)  # fmt: skip
def test_a_relay_that_begins_elsewhere_tells_all_consumers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: Any, base: int, served: int
) -> None:
    """Also those that a killed relay had served more than its saved state has."""
    config = RelayConfig(
        physical=(physical(1, "person", PERSON),), state=tmp_path, scn=kind,
        scn_column="id" if kind == "application" else None, memory_bytes=MEMORY, disk_bytes=1 << 20,
        columns={"or_test.person": {"deleted": "null"}},
    )  # fmt: skip
    buffer = EventBuffer(MEMORY, folder=tmp_path / "partition-1", disk_bytes=1 << 20)
    put(buffer, range(base + 1, base + 13))
    buffer.close()
    state = {"v": 1, "kind": kind, "gtid": "", "scn": base + 10, "last": None, "server_uuid": ""}
    (tmp_path / "partition-1.json").write_text(json.dumps(state))
    entries = [{"generation": one, "source": f"s{one}", "first": 1, "ts_us": 7} for one in (1, 2)]
    (tmp_path / "generations.json").write_text(json.dumps({"v": 1, "generations": entries}))

    relay = Relay(config, lambda _: GtidSet(), reset=True)
    buffer = relay.partitions[1].buffer
    for one in (base + 5, base + 10, base + 12, served):
        assert not buffer.holds(one)
        with pytest.raises(ScnNotFoundError):
            buffer.read(StreamPosition(one), 100)
    last = relay.partitions[1].feeder.position.now().scn
    assert (buffer.info().min_scn, buffer.holds(last)) == (-1, True)
    assert relay.partitions[1].feeder._scn.last == last > served
    relay.partitions[1].feeder._file.save()
    relay.close()
    again = Relay(config, lambda _: GtidSet())
    assert again.partitions[1].buffer.info() == buffer.info()
    again.close()
    assert "files are dropped" not in caplog.text


def test_a_server_that_is_away_keeps_no_other_source_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the one begins is looked up when its server answers; also for its binlog archive."""
    away = [True]

    def start(source: Any) -> GtidSet:
        if source.id == 2 and away[0]:
            raise ConnectError("nobody listens", host="h", port=1)
        return GtidSet.parse(f"{UUID}:1-{source.id}")

    followed: list[tuple[int, GtidSet]] = []

    def follow(settings: Any, had: GtidSet, *_: Any, **__: Any) -> Iterator[Any]:
        followed.append((settings.port, had))
        yield Idle(had)

    def prepared(feeder: Any) -> None:
        feeder._failures = Failures(RetryPolicy.every(0.01))
        feeder.begin()
        feeder._is_postponed = False

    monkeypatch.setattr(_feeder, "follow", follow)
    monkeypatch.setattr(_feeder.Feeder, "_prepare", prepared)
    monkeypatch.setattr(LogFeeder, "_check_history", lambda self: self._stop.wait(PATIENCE_SECONDS))
    other = replace(physical(2, "other", PET), settings=ConnectionSettings(host="127.0.0.1", port=2))
    config = RelayConfig(physical=(physical(1, "person", PERSON), other), state=tmp_path, log_disk_bytes=1 << 20)
    with Relay(config, start) as relay:
        one, two = relay.partitions.values()
        wait_until(lambda: (1, GtidSet.parse(f"{UUID}:1")) in followed)
        assert relay.status() == ("ERROR_RETRYING", "other: nobody listens")
        with pytest.raises(ServerBehindError):
            two.feeder.position.now()
        assert two.spool is not None
        assert not two.spool.has_begun
        away[0] = False
        wait_until(lambda: (2, GtidSet.parse(f"{UUID}:1-2")) in followed)
        wait_until(lambda: two.spool is not None and two.spool.has_begun)
        assert two.spool.gtid == GtidSet.parse(f"{UUID}:1-2")
        wait_until(lambda: relay.status() == ("RUNNING", ""))
    assert one.feeder.position.now().gtid == GtidSet.parse(f"{UUID}:1")
    away[0] = True
    with pytest.raises(ConnectError):  # a reset needs all servers, before it changes anything
        Relay(config, start, reset=True)
    assert not (tmp_path / "generations.json").exists()
