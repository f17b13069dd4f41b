"""Numbers in transactions, against counting one message after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import TargetError
from headgate.kafka.debezium.envelope import RECORDS
from headgate.kafka.debezium.transactions import TransactionEnd, TransactionNumbers

MESSAGES = st.lists(st.tuples(st.sampled_from(["s.a", "s.b", "s.c"]), st.booleans()), min_size=1, max_size=6)


def records(rows: Sequence[tuple[int | None, str, bool]]) -> pa.RecordBatch:
    """``rows`` are (number of the transaction, table, whether it is a message and no tombstone)."""
    columns = {
        "table": [table for _, table, _ in rows],
        "gtid": [None if number is None else f"u:{number}" for number, *_ in rows],
        "ts_us": [(number or 0) * 1000 for number, *_ in rows],
        "value": [b"{" if counts else None for *_, counts in rows],
    }
    arrays = [pa.array(columns.get(one.name, [None] * len(rows)), one.type) for one in RECORDS]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


@given(st.lists(MESSAGES, min_size=1, max_size=6), st.lists(st.integers(1, 30)))
def test_numbers(log: list[list[tuple[str, bool]]], cuts: list[int]) -> None:
    rows = [(number, *message) for number, messages in enumerate(log) for message in messages]
    expected, ends = [], []
    for number, messages in enumerate(log):
        counts: Counter[str] = Counter()
        for table, counted in messages:
            counts[table] += counted
            if counted:
                expected.append((f"u:{number}", sum(counts.values()), counts[table]))
        ends.append(TransactionEnd(f"u:{number}", number, {name: n for name, n in counts.items() if n}))
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    numbers, actual, ended = TransactionNumbers(), [], []
    for start, end in pairwise(bounds):
        places, more = numbers.number(records(rows[start:end]))
        numbered = zip(places.gtid.to_pylist(), places.total.tolist(), places.in_table.tolist(), strict=True)
        actual += [place for place, (*_, counted) in zip(numbered, rows[start:end], strict=True) if counted]
        ended += more
    assert actual == expected
    assert [
        one._replace(counts={k: v for k, v in one.counts.items() if v}) for one in (*ended, *numbers.rest())
    ] == ends
    assert [*numbers.rest()] == []


def test_values() -> None:
    begin, end = TransactionEnd("u:5", 7, {"s.b": 1, "s.a": 2}).values()
    assert begin == {"status": "BEGIN", "id": "u:5", "event_count": None, "data_collections": None, "ts_ms": 7}
    collections = [{"data_collection": "s.a", "event_count": 2}, {"data_collection": "s.b", "event_count": 1}]
    assert end == {"status": "END", "id": "u:5", "event_count": 3, "data_collections": collections, "ts_ms": 7}


def test_a_log_without_gtids_is_refused() -> None:
    with pytest.raises(TargetError, match="gtid_mode=ON"):
        TransactionNumbers().number(records([(None, "s.a", True)]))
