"""The oracle of messages: a consumer that reads the brokers' partitions, and the source's log.

A key is in one partition, so a consumer sees its messages in order; those without a key are in one partition. At rest:

- Each change since the stream's beginning is there, each once and in the order of the log, except that a later producer
  may go back and repeat what follows: ``at-least-once``, or ``exactly-once`` if the checkpoint of a batch was lost
  (docs/reference/kafka.md, "Order and delivery"). Between two drivers ``at-least-once`` promises no order.
- The last message of a key is its row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.simulation.broker import Message
from tests.simulation.driver import Fault, Pipeline, counts_of
from tests.simulation.sinks import PIPELINE_NAME
from tests.simulation.source import Counts
from tests.simulation.tables import SHAPES, Image, Shape
from tests.simulation.world import World

__all__ = ["judge_messages"]


class _Change(NamedTuple):
    """What a message says of a change."""

    op: str
    gtid: str | None
    ordinal: int
    before: Any
    after: Any


_TOMBSTONE = _Change("", None, 0, None, None)


def judge_messages(world: World, pipeline: Pipeline, table: str, state: Mapping[str, Any] | None) -> None:
    """Judge the messages of a table, at rest.

    :param state: of the table in the ledger.
    :raises Fault: one is missing, there twice, or in another order.
    """
    if pipeline.has_lost_batch and world.rewritten > world.known_rewrites:
        return  # the batch may have sent transactions that a failover lost
    shape, sent = SHAPES[table], dict[Any, list[tuple[int, _Change]]]()
    for (topic, partition), messages in pipeline.broker.partitions.items():
        if topic == f"{PIPELINE_NAME}.{table}":
            for message in messages:
                key, change = _read(shape, message)
                if key is None and partition:
                    raise Fault(f"a message of {table} without a key is in partition {partition}")
                sent.setdefault(key, []).append((message.producer, change))
    if not pipeline.has_message_gap and state is not None:
        faults = [_order(world, pipeline, shape, sent, counts_of(text)) for text in {*pipeline.message_begins}]
        if faults and None not in faults:
            raise Fault(f"messages of {table}: {faults[-1]}")
    repeats_late = pipeline.has_second and pipeline.delivery == "at-least-once"
    if shape.has_key and not shape.logs_parts and state is not None and state["state"] == "live" and not repeats_late:
        for key, row in world.main.states[-1].get(table, {}).items():
            last = [change.after for _, change in sent.get(key, ()) if change is not _TOMBSTONE][-1:]
            if last != [dict(zip(shape.columns, row, strict=True))]:
                raise Fault(f"the last message of {table} about {key} is {last}, not {row}")
    world.count("topic judged")


def _read(shape: Shape, message: Message) -> tuple[Any, _Change]:
    """Return the key of a message, and what it says."""
    key = None if message.key is None else json.loads(message.key)["id"]
    if shape.has_key != (key is not None):
        raise Fault(f"a message of {shape.table} has the key {key}")
    if message.value is None:
        return key, _TOMBSTONE
    value = json.loads(message.value)
    source = value["source"]
    return key, _Change(value["op"], source["gtid"], source["row"], value["before"], value["after"])


def _order(
    world: World, pipeline: Pipeline, shape: Shape, sent: Mapping[Any, Sequence[tuple[int, _Change]]], begin: Counts
) -> str | None:
    """Return what is wrong with the changes of a table, if the stream began there; None: nothing."""
    expected: dict[Any, list[_Change]] = {}
    for one in world.main.log:
        if one.number > begin[one.origin]:
            for key, change in _changes(shape, one.gtid, one.images):
                expected.setdefault(key, []).append(change)
    may_repeat = pipeline.delivery == "at-least-once" or pipeline.has_lost_batch
    for key in {*expected, *sent}:
        changes = [one for one in sent.get(key, ()) if one[1].op != "r"]
        fault = _sequence(changes, expected.get(key, []), may_repeat, any_order=pipeline.has_second and may_repeat)
        if fault is not None:
            return f"key {key}: {fault}"
    return None


def _sequence(
    sent: Sequence[tuple[int, _Change]], expected: Sequence[_Change], may_repeat: bool, *, any_order: bool
) -> str | None:
    """Return how a sequence differs from the expected one; None: it does not.

    :param may_repeat: whether a later producer may go back.
    :param any_order: whether any producer may. If one that was overtaken does, the others go on where they were.
    """
    at, most, last = -1, -1, 0
    for producer, change in sent:
        if at + 1 < len(expected) and expected[at + 1] == change:
            at += 1
        elif any_order and most + 1 < len(expected) and expected[most + 1] == change:
            at = most + 1
        else:
            known = [number for number in range(most + 1) if expected[number] == change]
            if not known or not may_repeat or not (any_order or producer > last):
                return f"after {at + 1} of {len(expected)} comes {change}, not {expected[at + 1 : at + 2]}"
            at = known[0]
        most, last = max(most, at), producer
    if most + 1 < len(expected):
        return f"the last is {expected[most] if most >= 0 else None}, and {expected[most + 1]} is missing"
    if at + 1 < len(expected) and not any_order:
        return f"after a repetition it ends with {expected[at]}, before {expected[at + 1]}"
    return None


def _changes(shape: Shape, gtid: str, images: Sequence[Image]) -> Iterator[tuple[Any, _Change]]:
    """Yield the messages of a transaction's images of a table (Debezium's format): key and what it says."""
    before: Image | None = None
    ordinal = -1
    for image in images:
        table, op, row, _ = image
        ordinal += op != "b"
        if table != shape.table or op == "t":
            continue
        if op == "b":
            before = image
            continue
        values = dict(shape.present(image))
        old = None if before is None else dict(shape.present(before))
        moved = shape.has_key and before is not None and before[2][0] != row[0]
        key = row[0] if shape.has_key else None
        if op == "d" or moved:
            gone = values if op == "d" else old
            where = row[0] if before is None else before[2][0]
            yield where if shape.has_key else None, _Change("d", gtid, ordinal, gone, None)
            if shape.has_key:
                yield where, _TOMBSTONE
        if op == "c" or moved:
            yield key, _Change("c", gtid, ordinal, None, values)
        elif op == "u":
            yield key, _Change("u", gtid, ordinal, old, values)
        before = None
