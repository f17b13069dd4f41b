"""What consumers request: the parameters of ``/stream`` and ``/register``, checked.

Parameters and their forms are Databus's (``ReadEventsRequestProcessor.java``, ``Checkpoint.java``,
``CheckpointMult.java``); ``wait`` is headgate's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, model_validator
from pydantic.alias_generators import to_camel

from headgate.columns import parse_expression
from headgate.parsing import parse_json
from headgate.relay.databus import StreamPosition, parse_position
from headgate.relay.server._http._parameters import (
    LARGEST_INT,
    Flag,
    InvalidParameterError,
    Number,
    Parameters,
    any_case,
    digits,
    json_text,
)
from headgate.relay.server._names import Selection, SourceNames
from headgate.relay.server._relay import Relay
from headgate.relay.server._tenants import Client
from headgate.relay.server.events import KINDS, RANGE, SourceFilter

__all__ = [
    "NO_FILTERS",
    "EventVersion",
    "FilterTexts",
    "Filters",
    "KeyFilters",
    "SourceIds",
    "StreamParameters",
    "StreamRequest",
    "build_stream_request",
    "filters_of",
    "known_sources",
]

_LONGEST_WAIT_MS: Final = 60_000
_KNOWN_LISTS: Final = 128
_ANY: Final = -1
"""The id that means every physical partition."""
_ID: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
"""Ids of sources are 16-bit numbers."""
_Long = Annotated[int, Field(gt=-(2**63), lt=2**63)]
_Int = Annotated[int, Field(ge=-LARGEST_INT, le=LARGEST_INT, strict=False)]
_SourceId = Annotated[str, Field(pattern=r"^[0-9]{1,5}$")]


class _Sent(BaseModel):
    """JSON with Databus's names; unknown ones are ignored."""

    model_config = ConfigDict(frozen=True, strict=True, alias_generator=to_camel)


class _Span(_Sent):
    start: _Long
    end: _Long


class _KeyFilter(_Sent):
    key_range: _Span | None = None
    bkt_range: _Span | None = None
    num_buckets: Annotated[_Long, Field(ge=1)] | None = None

    def span(self, kind: str) -> tuple[int, int, int]:
        """Return buckets, start and end; raise ValueError if one that filters of this kind need is missing."""
        span, buckets = (self.key_range, 1) if kind == "RANGE" else (self.bkt_range, self.num_buckets)
        if span is None or buckets is None:
            raise ValueError("not a filter")
        return buckets, span.start, span.end


def _checked_expression(text: str) -> str:
    """:raises ValueError: it is not a row expression."""
    parse_expression(text)
    return text


class KeyFilters(_Sent):
    """The filter of one source, by its keys and rows."""

    partition_type: Literal["NONE", "RANGE", "MOD", "HASH"]
    filters: tuple[_KeyFilter, ...] | None = None
    where: Annotated[str, AfterValidator(_checked_expression)] | None = None
    columns: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _has_rules(self) -> Self:
        self.rules(0)
        return self

    def rules(self, source: int) -> list[tuple[int, int, int, int, int]]:
        """Return the rules for the source's keys; none: all of them pass."""
        kind = self.partition_type
        if kind == "NONE":
            return []
        empty_rule = (source, RANGE, 1, 0, 0)
        return [empty_rule, *((source, KINDS[kind], *one.span(kind)) for one in self.filters or ())]


class _Source(_Sent):
    id: _Int


class _Physical(_Sent):
    id: _Int = _ANY


class _Logical(_Sent):
    source: _Source


class _Subscription(_Sent):
    logical_partition: _Logical
    physical_partition: _Physical = _Physical()


class Filters(NamedTuple):
    """A consumer's filters, of keys and of rows."""

    rules: Sequence[Sequence[int]]
    """As in :class:`headgate.relay.server.events._choice.Choice`."""
    row_filters: Mapping[int, SourceFilter]
    """By source id."""


NO_FILTERS: Final = Filters((), {})


@dataclass(frozen=True)
class StreamRequest:
    """A checked request of ``/stream``."""

    client: Client
    size: int
    """Most bytes of events, in their binary form."""
    encoding: str
    sources: tuple[int, ...] | None
    """Ids; None: all of the partitions that the client may read, including those discovered while it waits."""
    positions: Mapping[int, StreamPosition]
    """Physical partition → start position; in the order in which they are read in turn."""
    version: int
    """The newest event version that the consumer accepts."""
    wait_ms: int
    """How long to wait if there are no events."""
    filters: Filters = NO_FILTERS
    unknown: Callable[[], Sequence[bytes]] = tuple
    """Called after each read: ids of schemas before whose first window the answer ends."""

    def selection(self, names: SourceNames) -> Selection:
        """Return the sources, as known now."""
        return names.select_named(self.client.readable) if self.sources is None else names.select(self.sources)


def known_sources(ids: tuple[int, ...], client: Client, names: SourceNames, command: str) -> Selection:
    """Return the sources with these ids.

    :raises InvalidParameterError: an id is unknown.
    :raises NotAllowedError: the client may not read one.
    """
    selection = names.select(ids)
    if selection.unknown is not None:
        raise InvalidParameterError(command, "sources", selection.unknown)
    _check(client, selection)
    return selection


def _check(client: Client, selection: Selection) -> None:
    """:raises NotAllowedError: the client may not read one."""
    if client.is_restricted:
        client.check(one.name for one in selection.sources)


@lru_cache(_KNOWN_LISTS)
def _ids(listed: str) -> tuple[int, ...]:
    """Parse a list such as ``40,41``."""
    parts = [part.strip() for part in listed.split(",")]
    if not all(_ID.fullmatch(part) for part in parts):
        raise ValueError("not ids")
    return tuple(int(part) for part in parts)


def filters_of(by_source: Mapping[str, KeyFilters]) -> Filters:
    """Convert the parameter ``filters``, by source id."""
    rules = [rule for source, one in by_source.items() for rule in one.rules(int(source))]
    row_filters = {int(source): SourceFilter(one.where, one.columns) for source, one in by_source.items()}
    return Filters(rules, {source: one for source, one in row_filters.items() if one != SourceFilter()})


def _parse_positions(value: Mapping[str, str]) -> tuple[dict[int, StreamPosition], int | None]:
    """Parse positions by partition, and the partition to read first (None: any): an object, partition → checkpoint,
    optionally with ``cursorPartition``; names and values are JSON again.
    """
    positions, first = {}, None
    for name, text in value.items():
        if name == "cursorPartition":
            first = _Source.model_validate_json(text).id
        else:
            positions[_Source.model_validate_json(name).id] = parse_position(parse_json(text))
    return positions, first


SourceIds: TypeAlias = Annotated[InstanceOf[tuple[int, ...]], BeforeValidator(_ids)]
EventVersion: TypeAlias = Annotated[Literal[0, 2], digits]
"""The newest event version that the client understands; 0 is version 1."""
FilterTexts: TypeAlias = Annotated[InstanceOf[Filters], json_text(dict[_SourceId, KeyFilters], filters_of)]


class StreamParameters(Parameters):
    """The parameters of ``/stream``."""

    size: Number
    output: Annotated[Literal["binary", "json", "json_plain_value", "rows", "arrow"], any_case]
    sources: SourceIds | None = None
    subs: Annotated[
        InstanceOf[list[_Subscription]] | None, json_text(Annotated[list[_Subscription], Field(min_length=1)])
    ] = None
    check_point: Annotated[InstanceOf[StreamPosition], json_text(dict[str, Any], parse_position)] = StreamPosition(-1)
    check_point_mult: Annotated[Any, json_text(dict[str, str], _parse_positions)] = None
    """Positions by partition, and the partition to read first."""
    stream_from_latest_scn: Flag = False
    maxev: EventVersion = 0
    filters: FilterTexts = NO_FILTERS
    wait: Number = 0


def build_stream_request(parameters: StreamParameters, client: Client, relay: Relay) -> StreamRequest:
    """Combine the parameters of ``/stream``.

    :raises InvalidParameterError: sources are missing, or a source or partition does not exist.
    :raises NotAllowedError: the client may not read a source.
    """
    sources, wanted = _subscribed(parameters, client, relay)
    return StreamRequest(
        client,
        parameters.size,
        parameters.output,
        sources,
        {one: relay.partitions[one].buffer.newest_position() for one in wanted}
        if parameters.stream_from_latest_scn
        else _positions(parameters, wanted),
        version=max(parameters.maxev, 1),
        wait_ms=min(parameters.wait, _LONGEST_WAIT_MS),
        filters=parameters.filters,
    )


def _subscribed(
    parameters: StreamParameters, client: Client, relay: Relay
) -> tuple[tuple[int, ...] | None, Sequence[int]]:
    """Return the ids of the sources (None: all), and their physical partitions."""
    subscriptions, listed, partitions = parameters.subs, parameters.sources, set(relay.partitions)
    if subscriptions is None:
        if listed is None:
            raise InvalidParameterError("stream", "sources|subs", None)
        known = known_sources(listed, client, relay.names, "stream")
        return known.ids, known.partitions
    wanted: set[int] = set()
    sources: set[int] | None = set()
    for one in subscriptions:
        source, partition = one.logical_partition.source.id, one.physical_partition.id
        wanted |= partitions if partition < 0 else {partition}
        sources = None if source < 0 or sources is None else sources | {source}
    if not wanted <= partitions:
        raise InvalidParameterError("stream", "subs", f"physical partition {min(wanted - partitions)}")
    if sources is not None:
        chosen = relay.names.select(tuple(sorted(sources)))
        _check(client, chosen)
        return chosen.ids, sorted(wanted)
    return None, sorted(wanted)


def _positions(parameters: StreamParameters, wanted: Sequence[int]) -> dict[int, StreamPosition]:
    if parameters.check_point_mult is None:
        return dict.fromkeys(wanted, parameters.check_point)
    positions, first = parameters.check_point_mult
    order = sorted(wanted, key=lambda one: (first is not None and one < first, one))
    # Databus's client has one checkpoint for all its subscriptions.
    return {one: positions.get(one, positions.get(_ANY, StreamPosition(-1))) for one in order}
