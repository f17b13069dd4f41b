"""Files of a buffer that were made otherwise: nobody gets events in another version, or of a source that is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.relay.databus import event_fields
from headgate.relay.server import LogicalSource, Tenant
from headgate.web import Token
from tests.relay.databus.test_events import array
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import PERSON, PET, Served, physical, served
from tests.relay.server.test_app import pets

SIZES: dict[str, Any] = {"disk_bytes": 1 << 20, "memory_bytes": 256 << 10}
BOTH, ALONE = physical(1, "both", PERSON, PET), physical(1, "both", PERSON)


def put(relay: Served, n: int) -> None:
    relay.put(block(people([n], gtids=[f"{UUID}:{2 * n}"], pos=[100 * n])))
    if len(relay.relay.names.all()) > 1:
        relay.put(block(pets([n], gtids=[f"{UUID}:{2 * n + 1}"], pos=[100 * n + 50])))
    relay.relay.partitions[1].feeder._file.save()


def events(relay: Served, token: str | None = None, **parameters: Any) -> Any:
    parameters = {"sources": ",".join(str(one.id) for one in relay.relay.names.all()), **parameters}
    answer = relay.get("stream", token, size="100000", output="binary", **parameters)
    assert answer.status == 200, answer.body
    return event_fields(array(answer.body))


@pytest.mark.parametrize("versions", [(1, 2), (2, 1)])
def test_another_event_version(tmp_path: Path, versions: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    """A restart with other events: clients of either version get what they can read, and whole SCNs."""
    before, after = versions
    with served(ALONE, state=tmp_path, event_version=before, **SIZES) as relay:
        put(relay, 1)
        assert set(events(relay, maxev="0").version) == {1}
    with served(ALONE, state=tmp_path, event_version=after, **SIZES) as relay:
        assert relay.relay.partitions[1].buffer.info().min_scn == -1
        put(relay, 2)
        for accepted in (0, 2):
            fields = events(relay, maxev=str(accepted))
            assert set(fields.version) == {max(1, min(after, accepted))}
            assert set(fields.scn & 0xFFFF) == {4}
    assert [one.getMessage() for one in caplog.records] == [
        "both: event_version changed, so the buffer's files are dropped"
    ]


def test_a_source_that_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A tenant that may read one table gets no row of another that the relay followed before."""
    tenants = (Tenant("t", Token("a-token-of-sixteen"), sources=(PERSON.name,)),)
    with served(BOTH, state=tmp_path, tenants=tenants, **SIZES) as relay:
        put(relay, 1)
    with served(ALONE, state=tmp_path, tenants=tenants, **SIZES) as relay:
        put(relay, 2)
        fields = events(relay, "a-token-of-sixteen", sources=str(PERSON.id))
        assert set(fields.source[fields.source > 0]) == {PERSON.id}
        assert set(fields.scn & 0xFFFF) == {4}
    assert [one.getMessage() for one in caplog.records] == [
        f"both: the source {PET.name} was removed or changed, so the buffer's files are dropped"
    ]


def test_a_source_that_joins_keeps_the_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with served(ALONE, state=tmp_path, **SIZES) as relay:
        put(relay, 1)
    with served(BOTH, state=tmp_path, **SIZES) as relay:
        put(relay, 2)
        assert set(events(relay).scn & 0xFFFF) == {2, 4, 5}
    with served(BOTH, state=tmp_path, **SIZES) as relay:
        assert set(events(relay).scn & 0xFFFF) == {2, 4, 5}
    assert not caplog.records


@pytest.mark.parametrize("both", [(PERSON, PET), (PERSON, LogicalSource(60, "com.example", "or_test.p?t"))])
def test_a_source_that_comes_back(
    both: tuple[LogicalSource, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its changes meanwhile are in no file, so nobody gets what follows them without them."""
    with served(physical(1, "both", *both), state=tmp_path, **SIZES) as relay:
        relay.put(block(people([1], gtids=[f"{UUID}:2"], pos=[100])))
        relay.put(block(pets([1], gtids=[f"{UUID}:3"], pos=[150])))
        relay.relay.partitions[1].feeder._file.save()
        (pet,) = (one for one in relay.relay.names.all() if one.table == PET.table)
    for n in (2, 3):
        with served(ALONE, state=tmp_path, **SIZES) as relay:
            assert relay.relay.names.by_id(pet.id) is None
            put(relay, n)
    with served(physical(1, "both", *both), state=tmp_path, **SIZES) as relay:
        assert relay.relay.names.by_id(pet.id) == pet
        assert relay.relay.partitions[1].buffer.info().min_scn == -1
        put(relay, 4)
    with served(physical(1, "both", *both), state=tmp_path, **SIZES) as relay:
        assert 8 in set(events(relay).scn & 0xFFFF)
    assert [one.getMessage() for one in caplog.records] == [
        f"both: the source {pet.name} was removed or changed, so the buffer's files are dropped",
        f"both: the source {pet.name} was not followed for some time, so the buffer's files are dropped",
    ]


def test_another_logical_partition(tmp_path: Path) -> None:
    with served(ALONE, state=tmp_path, event_version=1, **SIZES) as relay:
        put(relay, 1)
    other = physical(1, "both", replace(PERSON, partition=2))
    with served(other, state=tmp_path, event_version=1, **SIZES) as relay:
        assert relay.relay.partitions[1].buffer.info().min_scn == -1


def test_a_patterns_table_that_gets_an_id_of_its_own(tmp_path: Path) -> None:
    """Its events so far have the pattern's id, which nobody can request any more."""
    pattern = LogicalSource(60, "com.example", "or_test.*")
    with served(physical(1, "both", pattern), state=tmp_path, **SIZES) as relay:
        put(relay, 1)
    with served(physical(1, "both", pattern, PERSON), state=tmp_path, **SIZES) as relay:
        assert relay.relay.partitions[1].buffer.info().min_scn == -1


def test_files_from_now_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with served(ALONE, state=tmp_path, memory_bytes=256 << 10) as relay:
        put(relay, 1)
    with served(ALONE, state=tmp_path, **SIZES) as relay:
        put(relay, 2)
    with served(ALONE, state=tmp_path, **SIZES) as relay:
        assert set(events(relay).scn & 0xFFFF) == {4}
    assert not caplog.records


def test_files_without_a_readable_mark(tmp_path: Path) -> None:
    file = tmp_path / "partition-1.mark.json"
    with served(ALONE, state=tmp_path, **SIZES) as relay:
        put(relay, 1)
    file.write_text('{"v": 1}')
    with pytest.raises(ConfigError, match="is not a mark"), served(ALONE, state=tmp_path, **SIZES):
        pass
    file.unlink()
    with served(ALONE, state=tmp_path, **SIZES) as relay:
        assert relay.relay.partitions[1].buffer.info().min_scn == -1
