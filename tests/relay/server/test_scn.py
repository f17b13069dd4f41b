"""SCNs: they grow with the log, the same transaction has the same one, or there is a refusal."""

from __future__ import annotations

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config import ScnKind
from headgate.errors import ConfigError, ScnOrderError
from headgate.relay.server import GenerationMap, Scn, WholeTransactions, scn_after_reset

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
NUMBER = 1 << 48


def give(
    scn: Scn,
    *gtids: str,
    files: list[int] | None = None,
    positions: list[int] | None = None,
    values: list[int] | None = None,
) -> list[int]:
    count = len(gtids)
    file = np.array(files or [1] * count, np.int64)
    pos = np.array(positions or range(4, 4 + count), np.int64)
    value = np.array(values or [-1] * count, np.int64)
    return [int(one) for one in scn.number(WholeTransactions(gtids, file, pos, np.full(count, 7, np.int64), value))]


def test_binlog_offset_is_file_and_offset() -> None:
    scn = Scn("binlog-offset")
    assert give(scn, f"{A}:1", positions=[4]) == [4_294_967_300]
    # Above 2 GiB Databus's own turn negative.
    assert give(scn, f"{A}:2", f"{A}:3", positions=[2**31, 2**32 - 1]) == [2**32 + 2**31, 2**33 - 1]
    assert give(scn, f"{A}:4", files=[2**31 - 1], positions=[2**32 - 1]) == [2**63 - 1]
    assert scn.last == 2**63 - 1


PLACES = st.lists(st.tuples(st.integers(1, 2**31 - 1), st.integers(4, 2**32 - 1)), min_size=1, max_size=20, unique=True)


@given(PLACES, st.integers(0, 20))
def test_binlog_offset_grows_with_the_log_over_restarts(places: list[tuple[int, int]], restart: int) -> None:
    places.sort()
    scn = Scn("binlog-offset")
    given_scns: list[int] = []
    for number, (file, pos) in enumerate(places):
        if number == restart:
            scn = Scn("binlog-offset", last=scn.last)
        given_scns += give(scn, f"{A}:1", files=[file], positions=[pos])
    assert given_scns == sorted(set(given_scns))
    assert [(one >> 32, one & 0xFFFFFFFF) for one in given_scns] == places
    assert given_scns[0] > 0


@pytest.mark.parametrize(
    ("files", "positions"),
    [([1, 1], [500, 400]), ([2, 1], [4, 900]), ([1, 1], [500, 500]), ([1], [2**32]), ([2**31], [4])],
)
def test_binlog_offset_refuses_what_it_cannot_number(files: list[int], positions: list[int]) -> None:
    with pytest.raises(ScnOrderError, match="gtid-generation"):
        give(Scn("binlog-offset"), *(f"{A}:{n}" for n in range(len(files))), files=files, positions=positions)
    with pytest.raises(ScnOrderError, match="was reset"):
        give(Scn("binlog-offset", last=2**40), f"{A}:1", positions=[4])


def test_relay_generated_counts() -> None:
    scn = Scn("relay-generated")
    assert give(scn, f"{A}:7", f"{B}:1") == [1, 2]
    assert give(Scn("relay-generated", last=scn.last), f"{A}:3") == [3]
    # Two relays of one state, on servers whose logs are elsewhere: the same.
    assert give(Scn("relay-generated", last=100), f"{A}:8", files=[10], positions=[1000]) == give(
        Scn("relay-generated", last=100), f"{A}:8", files=[50], positions=[4]
    )


def test_generations_change_with_the_source() -> None:
    scn = Scn("gtid-generation", GenerationMap())
    assert give(scn, f"{A}:5", f"{A}:9", f"{B}:1", f"{B}:2", f"{A}:10") == [
        NUMBER + 5, NUMBER + 9, 2 * NUMBER + 1, 2 * NUMBER + 2, 3 * NUMBER + 10,
    ]  # fmt: skip
    assert give(scn, f"{A}:tag:1") == [4 * NUMBER + 1]


def test_relays_with_one_map_agree_wherever_they_read(tmp_path: Path) -> None:
    file = tmp_path / "shared" / "generations.json"
    log = [*(f"{A}:{n}" for n in range(1, 4)), f"{B}:1", f"{B}:2", *(f"{A}:{n}" for n in range(4, 6))]
    first = give(Scn("gtid-generation", GenerationMap(file)), *log)
    assert first == sorted(set(first))
    entries = json.loads(file.read_text())["generations"]
    assert [(one["generation"], one["source"], one["first"], one["ts_us"]) for one in entries] == [
        (1, A, 1, 7), (2, B, 1, 7), (3, A, 4, 7),
    ]  # fmt: skip
    for begin in range(len(log)):
        other = Scn("gtid-generation", GenerationMap(file), first[begin - 1] if begin else -1)
        assert give(other, *log[begin:]) == first[begin:]
        fresh = Scn("gtid-generation", GenerationMap(file))
        assert give(fresh, *log[begin:]) == first[begin:]
    assert json.loads(file.read_text())["generations"] == entries


def test_a_relay_that_begins_earlier_in_the_log_agrees_with_the_others(tmp_path: Path) -> None:
    file = tmp_path / "g.json"
    late = Scn("gtid-generation", GenerationMap(file))
    assert give(late, f"{A}:100") == [NUMBER + 100]
    early = Scn("gtid-generation", GenerationMap(file))
    assert give(early, f"{A}:5", f"{A}:100", f"{B}:7") == [NUMBER + 5, NUMBER + 100, 2 * NUMBER + 7]
    # The late one reads on, where the other one had begun later; after restarts it is the same.
    assert give(late, f"{A}:101", f"{B}:6", f"{B}:7") == [NUMBER + 101, 2 * NUMBER + 6, 2 * NUMBER + 7]
    again = Scn("gtid-generation", GenerationMap(file), NUMBER + 101)
    assert give(again, f"{B}:6", f"{A}:102", f"{B}:8") == [2 * NUMBER + 6, 3 * NUMBER + 102, 4 * NUMBER + 8]
    assert [one["generation"] for one in json.loads(file.read_text())["generations"]] == [1, 2, 3, 4]


@pytest.mark.parametrize("more", [[], [f"{B}:1", f"{A}:200"]])
def test_a_log_that_contradicts_the_map_is_refused(tmp_path: Path, more: list[str]) -> None:
    file = tmp_path / "g.json"
    give(Scn("gtid-generation", GenerationMap(file)), f"{A}:100", *more)
    early = Scn("gtid-generation", GenerationMap(file))
    give(early, f"{B}:1")  # nothing shows yet that this is before generation 1
    entries = file.read_text()
    with pytest.raises(ScnOrderError, match=r"begin with transaction 100.*--from"):
        give(early, f"{A}:5")
    assert file.read_text() == entries


def test_a_smaller_number_of_one_source_is_refused_after_a_restart_too() -> None:
    generations = GenerationMap()
    last = give(Scn("gtid-generation", generations), f"{A}:1", f"{A}:900")[-1]
    with pytest.raises(ScnOrderError, match=r"smaller number.*relay-generated"):
        give(Scn("gtid-generation", generations, last), f"{A}:2")


def test_relays_that_are_reset_one_after_the_other_agree(tmp_path: Path) -> None:
    """RESET BINARY LOGS AND GTIDS, then --anew: the same numbers mean other transactions."""
    file = tmp_path / "g.json"
    last = give(Scn("gtid-generation", GenerationMap(file)), f"{A}:1", f"{A}:900")[-1]

    def reset() -> Scn:
        generations = GenerationMap(file)
        return Scn("gtid-generation", generations, scn_after_reset("gtid-generation", last, generations))

    first, second = reset(), reset()
    assert first.last == second.last == 2 * NUMBER
    assert give(first, f"{A}:3", f"{A}:4") == [3 * NUMBER + 3, 3 * NUMBER + 4]
    assert give(second, f"{A}:2", f"{A}:3") == [3 * NUMBER + 2, 3 * NUMBER + 3]
    assert give(Scn("gtid-generation", GenerationMap(file)), f"{A}:1") == [3 * NUMBER + 1]
    with pytest.raises(ScnOrderError, match="start this one with --anew, too"):
        give(Scn("gtid-generation", GenerationMap(file), last), f"{A}:901")
    generations = GenerationMap(file)
    assert scn_after_reset("gtid-generation", first.last, generations) == 4 * NUMBER


def test_generations_of_several_threads_differ() -> None:
    generations, ready = GenerationMap(), threading.Barrier(8)

    def begin(n: int) -> int:
        ready.wait()
        return generations.generation_of(f"{A}:t{n}", 1, 0, last=-1)

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(begin, range(8))) == list(range(1, 9))


def test_generations_end() -> None:
    generations = GenerationMap()
    assert generations.generation_of(A, 1, 0, last=(2**15 - 2) * NUMBER) == 2**15 - 1
    with pytest.raises(ScnOrderError, match="relay-generated"):
        generations.generation_of(B, 1, 0, last=-1)
    with pytest.raises(ScnOrderError, match="does not fit"):
        give(Scn("gtid-generation", GenerationMap()), f"{A}:{NUMBER}")


SOURCES = st.lists(st.tuples(st.sampled_from([A, B, f"{A}:t"]), st.integers(1, 5)), min_size=1, max_size=30)


@given(SOURCES, st.sets(st.integers(0, 30)))
def test_gtid_generation_over_any_failovers_and_restarts(runs: list[tuple[str, int]], restarts: set[int]) -> None:
    counts: dict[str, int] = {}
    log = []
    for source, length in runs:
        for _ in range(length):
            counts[source] = counts.get(source, 0) + 1
            log.append(f"{source}:{counts[source]}")
    generations = GenerationMap()
    scn = Scn("gtid-generation", generations)
    scns: list[int] = []
    for number, gtid in enumerate(log):
        if number in restarts:
            scn = Scn("gtid-generation", generations, scn.last)
        scns += give(scn, gtid)
    assert scns == sorted(set(scns))
    assert all(0 < one < 2**63 for one in scns)
    # A second reading, from any place, gives the same numbers.
    for begin in {0, len(log) // 2}:
        assert give(Scn("gtid-generation", generations, scns[begin - 1] if begin else -1), *log[begin:]) == scns[begin:]


def test_transactions_that_come_again_get_the_same_numbers() -> None:
    """A block was numbered, and the buffer could not take it: its last source is not the one before its first."""
    scn = Scn("gtid-generation")
    first = give(scn, f"{A}:10", f"{B}:5", f"{A}:11")
    assert first == [NUMBER + 10, 2 * NUMBER + 5, 3 * NUMBER + 11]
    scn.last = -1
    assert give(scn, f"{A}:10", f"{B}:5", f"{A}:11") == first
    scn.last = first[0]
    assert [*give(scn, f"{B}:5"), *give(scn, f"{A}:11")] == first[1:]


def test_the_applications_numbers() -> None:
    scn = Scn("application")
    assert give(scn, f"{A}:1", f"{A}:2", values=[5, 2**63 - 2]) == [5, 2**63 - 2]
    assert give(Scn("application", last=scn.last), f"{B}:1", values=[2**63 - 1]) == [2**63 - 1]
    with pytest.raises(ScnOrderError, match="not in commit order"):
        give(Scn("application"), f"{A}:1", f"{A}:2", values=[7, 6])
    with pytest.raises(ScnOrderError, match=f"no row with a number.*gtid={A}:2"):
        give(Scn("application"), f"{A}:1", f"{A}:2", values=[7, -1])


def test_numbers_of_the_server_with_a_generation() -> None:
    generations = GenerationMap()
    scn = Scn("source-generated", generations)
    assert give(scn, f"{A}:1", f"{A}:2", f"{B}:1", values=[100, 102, 103]) == [
        NUMBER + 100, NUMBER + 102, 2 * NUMBER + 103,
    ]  # fmt: skip
    assert give(Scn("source-generated", generations, scn.last), f"{B}:2", values=[104]) == [2 * NUMBER + 104]
    with pytest.raises(ScnOrderError, match="committed after one with a greater number"):
        give(scn, f"{B}:2", f"{B}:3", values=[105, 104])
    with pytest.raises(ScnOrderError, match="no row"):
        give(scn, f"{B}:4")


def test_a_map_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "g.json"
    for text in ("{", "[]", '{"v": 1}', '{"generations": [{"a": 1}]}'):
        file.write_text(text)
        with pytest.raises(ConfigError, match=r"g\.json"):
            GenerationMap(file)


@pytest.mark.parametrize("kind", get_args(ScnKind))
def test_after_an_error_the_numbers_go_on_from_before_it(kind: ScnKind) -> None:
    scn = Scn(kind)
    first = give(scn, f"{A}:1", values=[1])
    with pytest.raises(ScnOrderError) if kind != "relay-generated" else contextlib.nullcontext():
        give(scn, f"{A}:2", f"{A}:1", positions=[8, 4], values=[2, 1])
    assert scn.last == (first[-1] if kind != "relay-generated" else first[-1] + 2)
