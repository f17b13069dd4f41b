"""Databus's events and checkpoints, byte by byte and key by key: what a relay and its consumers exchange.

===============  =========================================================================
``_binary``      events, versions 1 and 2: writing, walking, converting, checking
``_fields``      events as columns
``_schema``      a version of a source's schema, and its id in events
``_checkpoint``  a consumer's position in the stream or in a bootstrap, in Databus's form
``_group``       reports of a group's members, and the answers
===============  =========================================================================

The relay writes it, its client reads it, and neither depends on the other.
"""

from headgate.databus._binary import (
    EOP_SIZE,
    EOP_SOURCE,
    PART_HEAD,
    convert_to_v1,
    count_sources,
    event_sizes,
    fit,
    i16_at,
    i64_at,
    is_intact,
    parts_at,
    put_eops,
    put_events,
    put_number,
    scan_windows,
    seal,
    size_at,
    skip,
    source_at,
    u32_at,
)
from headgate.databus._checkpoint import (
    CATCHUP,
    CHECKPOINT_SOURCE,
    FIRST,
    SNAPSHOT,
    BootstrapPoint,
    StreamPosition,
    bootstrap_of,
    checkpoint_event,
    checkpoint_json,
    parse_position,
)
from headgate.databus._fields import EventFields, byte_ranges, event_fields, gather_ranges, without_schema_ids
from headgate.databus._group import LARGEST_GROUP, MEMBER_REPORT, OWNED, MemberReport, Owned, PartitionReport
from headgate.databus._schema import Schema, avro_text

__all__ = [
    "CATCHUP",
    "CHECKPOINT_SOURCE",
    "EOP_SIZE",
    "EOP_SOURCE",
    "FIRST",
    "LARGEST_GROUP",
    "MEMBER_REPORT",
    "OWNED",
    "PART_HEAD",
    "SNAPSHOT",
    "BootstrapPoint",
    "EventFields",
    "MemberReport",
    "Owned",
    "PartitionReport",
    "Schema",
    "StreamPosition",
    "avro_text",
    "bootstrap_of",
    "byte_ranges",
    "checkpoint_event",
    "checkpoint_json",
    "convert_to_v1",
    "count_sources",
    "event_fields",
    "event_sizes",
    "fit",
    "gather_ranges",
    "i16_at",
    "i64_at",
    "is_intact",
    "parse_position",
    "parts_at",
    "put_eops",
    "put_events",
    "put_number",
    "scan_windows",
    "seal",
    "size_at",
    "skip",
    "source_at",
    "u32_at",
    "without_schema_ids",
]
