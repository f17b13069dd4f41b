"""What a consumer asks for: the parameters of ``/stream`` and ``/register``, checked.

Parameters and their forms are Databus's (``ReadEventsRequestProcessor.java``, ``Checkpoint.java``,
``CheckpointMult.java``); ``wait`` is ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel

from headgate.databus import CHECKPOINT_SCHEMA, Place, place_of
from headgate.relay._events._choice import rules_of
from headgate.relay._events._where import RowFilter, check_predicate
from headgate.relay._http._parameters import LARGEST_INT, InvalidParameterError, choice, flag, integer, json_value, text
from headgate.relay._selections import Selection, Selections
from headgate.relay._tenants import Client

__all__ = [
    "SOURCES",
    "STREAM",
    "Filters",
    "KeyFilters",
    "StreamRequest",
    "filters_of",
    "known_sources",
    "readable",
    "stream_request",
]

_LONGEST_WAIT_MS: Final = 60_000
_KNOWN_LISTS: Final = 128
_ANY: Final = -1
"""The id of a physical partition that means each of them."""
_ID: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
"""Ids of sources are 16-bit numbers."""
_Long = Annotated[int, Field(gt=-(2**63), lt=2**63)]
_Int = Annotated[int, Field(ge=-LARGEST_INT, le=LARGEST_INT, strict=False)]
_SourceId = Annotated[str, Field(pattern=r"^[0-9]{1,5}$")]


class _Sent(BaseModel):
    """JSON in Databus's names; what it does not know is ignored."""

    model_config = ConfigDict(frozen=True, strict=True, alias_generator=to_camel)


class _Span(_Sent):
    start: _Long
    end: _Long


class _KeyFilter(_Sent):
    key_range: _Span | None = None
    bkt_range: _Span | None = None
    num_buckets: Annotated[_Long, Field(ge=1)] | None = None

    def span(self, kind: str) -> tuple[int, int, int]:
        """Buckets, start and end; raises ValueError: it lacks what filters of this kind take."""
        span, buckets = (self.key_range, 1) if kind == "RANGE" else (self.bkt_range, self.num_buckets)
        if span is None or buckets is None:
            raise ValueError("not a filter")
        return buckets, span.start, span.end


class KeyFilters(_Sent):
    """What is wanted of a source, by its keys and rows."""

    partition_type: Literal["NONE", "RANGE", "MOD", "HASH"]
    filters: tuple[_KeyFilter, ...] | None = None
    where: Annotated[list[Any], Field(min_length=2), AfterValidator(check_predicate)] | None = None
    columns: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _has_rules(self) -> Self:
        self.rules(0)
        return self

    def rules(self, source: int) -> list[tuple[int, int, int, int, int]]:
        """Those of its keys."""
        return rules_of(source, self.partition_type, (one.span(self.partition_type) for one in self.filters or ()))


class _Source(_Sent):
    id: _Int


class _Physical(_Sent):
    id: _Int = _ANY


class _Logical(_Sent):
    source: _Source


class _Subscription(_Sent):
    logical_partition: _Logical
    physical_partition: _Physical = _Physical()


@dataclass(frozen=True)
class StreamRequest:
    """A checked ``/stream``."""

    client: Client
    size: int
    """Most bytes of events, as they are in binary."""
    encoding: str
    sources: tuple[int, ...] | None
    """Ids; None: all of the partitions, also those that turn up while it waits."""
    places: Mapping[int, Place]
    """Physical partition → from where; in the order in which they take turns."""
    latest: bool
    """From the newest window on, whatever the places say."""
    version: int
    """The newest event version that the consumer reads."""
    wait_ms: int
    """How long to wait for events if there are none."""
    rules: Sequence[Sequence[int]] = ()
    """Of the filters, as in :class:`headgate.relay._events._choice.Choice`."""
    rows: Mapping[int, RowFilter] = field(default_factory=dict)
    """By source id: what is wanted of its rows."""
    unknown: Callable[[], Sequence[bytes]] = tuple
    """Asked when events are there: ids of schemas before whose first window the answer ends."""


def known_sources(ids: tuple[int, ...], client: Client, selections: Selections, command: str) -> Selection:
    """The sources with these ids.

    :raises InvalidParameterError: there is none of an id.
    :raises NotAllowedError: the client may not read one.
    """
    found = selections.of(ids)
    if found.unknown is not None:
        raise InvalidParameterError(command, "sources", found.unknown)
    _check(client, found)
    return found


def _check(client: Client, selection: Selection) -> None:
    """:raises NotAllowedError: the client may not read one."""
    if client.is_restricted:
        client.check(one.name for one in selection.sources)


@lru_cache(_KNOWN_LISTS)
def _ids(listed: str) -> tuple[int, ...]:
    """``40,41``."""
    found = [part.strip() for part in listed.split(",")]
    if not all(_ID.fullmatch(part) for part in found):
        raise ValueError("not ids")
    return tuple(int(part) for part in found)


class Filters(NamedTuple):
    """What a consumer wants of its sources."""

    rules: list[tuple[int, int, int, int, int]]
    rows: dict[int, RowFilter]


def filters_of(given: Mapping[str, KeyFilters]) -> Filters:
    """The parameter ``filters``, by source id."""
    rules = [rule for source, one in given.items() for rule in one.rules(int(source))]
    asked = {int(source): RowFilter(one.where, one.columns) for source, one in given.items()}
    return Filters(rules, {source: one for source, one in asked.items() if one != RowFilter()})


def _several(value: Any) -> tuple[dict[int, Place], int | None]:
    """Places by partition, and whose turn is first: an object, partition → checkpoint, perhaps with
    ``cursorPartition``; names and values are JSON again.
    """
    places, first = {}, None
    try:
        for name, text in value.items():
            if name == "cursorPartition":
                first = int(json.loads(text)["id"])
            else:
                places[int(json.loads(name)["id"])] = place_of(json.loads(text))
    except RecursionError:
        raise ValueError("too deep") from None
    return places, first


SOURCES: Final = replace(
    text("sources", "Ids of logical sources, by comma.", pattern=r"^ *[0-9]{1,5} *(, *[0-9]{1,5} *)*$"), parse=_ids
)
STREAM: Final = (
    integer("size", "The most bytes of events, as they are in binary.", required=True),
    choice(
        "output",
        "Databus's forms of events; or the rows decoded, as JSON lines or Arrow IPC.",
        ("binary", "json", "json_plain_value", "rows", "arrow"),
        required=True,
    ),
    SOURCES,
    json_value(
        "subs",
        "Instead of sources: Databus's subscriptions; the id -1 is any.",
        Annotated[list[_Subscription], Field(min_length=1)],
    ),
    json_value(
        "checkPoint",
        "From where, in Databus's form; none: from the oldest event.",
        Annotated[dict[str, Any], WithJsonSchema(CHECKPOINT_SCHEMA)],
        place_of,
    ),
    json_value(
        "checkPointMult",
        'From where in each physical source: {"{\\"id\\":1}": "<checkpoint>"}; values are JSON, too.',
        dict[str, str],
        _several,
    ),
    flag("streamFromLatestScn", "true: from the newest transaction on, whatever the checkpoint is."),
    choice(
        "maxev",
        "The newest event version that is understood: 0 is version 1. 2: with the rows before updates, also in rows "
        "and arrow, if the relay has them.",
        (0, 2),
        default=0,
    ),
    json_value("filters", "Which keys, rows and columns, by source id.", dict[_SourceId, KeyFilters], filters_of),
    integer("wait", "Milliseconds to wait for events if there are none; at most 60,000 count.", default=0),
)


def stream_request(
    given: Mapping[str, Any], client: Client, selections: Selections, partitions: Sequence[int]
) -> StreamRequest:
    """What the parameters of ``/stream``, read by :data:`STREAM`, ask for together.

    :param partitions: the physical partitions there are.
    :raises InvalidParameterError: sources are missing, or something that is not there is asked for.
    :raises NotAllowedError: the client may not read a source.
    """
    sources, wanted = _subscribed(given, client, selections, partitions)
    rules, rows = given["filters"] or Filters([], {})
    return StreamRequest(
        client,
        given["size"],
        given["output"],
        sources,
        _places(given, wanted),
        latest=given["streamFromLatestScn"],
        version=max(given["maxev"], 1),
        wait_ms=min(given["wait"], _LONGEST_WAIT_MS),
        rules=rules,
        rows=rows,
    )


def _subscribed(
    given: Mapping[str, Any], client: Client, selections: Selections, partitions: Sequence[int]
) -> tuple[tuple[int, ...] | None, Sequence[int]]:
    """Ids of sources (None: all), and the physical partitions that they are in."""
    subscriptions, listed = given["subs"], given["sources"]
    if listed is None and subscriptions is None:
        raise InvalidParameterError("stream", "sources|subs", None)
    if subscriptions is None:
        known = known_sources(listed, client, selections, "stream")
        return known.ids, known.partitions
    wanted: set[int] = set()
    found: set[int] | None = set()
    for one in subscriptions:
        source, partition = one.logical_partition.source.id, one.physical_partition.id
        wanted |= set(partitions) if partition < 0 else {partition}
        found = None if source < 0 or found is None else found | {source}
    if not wanted <= set(partitions):
        raise InvalidParameterError("stream", "subs", f"physical partition {min(wanted - set(partitions))}")
    if found is not None:
        chosen = selections.of(tuple(sorted(found)))
        _check(client, chosen)
        return chosen.ids, sorted(wanted)
    return (readable(client, selections) if client.is_restricted else None), sorted(wanted)


def readable(client: Client, selections: Selections) -> tuple[int, ...]:
    """The ids of all sources that a client may read now."""
    return tuple(one.id for one in selections.everything().sources if client.may_read(one.name))


def _places(given: Mapping[str, Any], wanted: Sequence[int]) -> dict[int, Place]:
    if given["checkPointMult"] is None:
        return dict.fromkeys(wanted, given["checkPoint"] or Place(-1))
    places, first = given["checkPointMult"]
    order = sorted(wanted, key=lambda one: (first is not None and one < first, one))
    any_of_them = places.get(_ANY, Place(-1))  # Databus's client has one checkpoint for all that it subscribes to
    return {one: places.get(one, any_of_them) for one in order}
