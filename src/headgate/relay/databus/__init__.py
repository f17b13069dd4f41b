"""Databus's events and checkpoints, byte by byte and key by key: what a relay and its consumers exchange.

===============  =========================================================================
``_binary``      events, versions 1 and 2: writing, walking, converting, checking
``_fields``      events as columns
``_schema``      a version of a source's schema, and its id in events
``_checkpoint``  a consumer's position in the stream or in a bootstrap, in Databus's form
``_group``       reports of a group's members, and the answers
``_headers``     headers of HTTP, and the classes of errors in them
===============  =========================================================================

The relay writes it, its client reads it, and neither depends on the other.
"""

from headgate.relay.databus._binary import (
    EOP_SIZE,
    EOP_SOURCE,
    PART_HEAD,
    convert_to_v1,
    count_sources,
    event_sizes,
    fit,
    i64_at,
    is_intact,
    key_at,
    parts_at,
    put_eops,
    put_events,
    put_part_size,
    put_size,
    scan_windows,
    seal,
    size_at,
    skip,
    source_at,
)
from headgate.relay.databus._checkpoint import (
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
from headgate.relay.databus._fields import EventFields, byte_ranges, event_fields, gather_ranges, without_schema_ids
from headgate.relay.databus._group import LARGEST_GROUP, MEMBER_REPORT, OWNED, MemberReport, Owned, PartitionReport
from headgate.relay.databus._headers import (
    BOOTSTRAP_SERVER,
    CHECKPOINT,
    CLIENT_HOST,
    CLIENT_SERVICE,
    ERROR,
    ERROR_CAUSE,
    ERROR_CAUSE_MESSAGE,
    ERROR_MESSAGE,
    INVALID_PARAMETER,
    PENDING_EVENT_SIZE,
    PHASE_COMPLETED,
    PROCESSING_FAILED,
    PROTOCOL_VERSION,
    SCN_NOT_FOUND,
    SERVER_HOST,
    SERVER_SERVICE,
    UNKNOWN_COMMAND,
)
from headgate.relay.databus._schema import Schema, avro_text

__all__ = [
    "BOOTSTRAP_SERVER",
    "CATCHUP",
    "CHECKPOINT",
    "CHECKPOINT_SOURCE",
    "CLIENT_HOST",
    "CLIENT_SERVICE",
    "EOP_SIZE",
    "EOP_SOURCE",
    "ERROR",
    "ERROR_CAUSE",
    "ERROR_CAUSE_MESSAGE",
    "ERROR_MESSAGE",
    "FIRST",
    "INVALID_PARAMETER",
    "LARGEST_GROUP",
    "MEMBER_REPORT",
    "OWNED",
    "PART_HEAD",
    "PENDING_EVENT_SIZE",
    "PHASE_COMPLETED",
    "PROCESSING_FAILED",
    "PROTOCOL_VERSION",
    "SCN_NOT_FOUND",
    "SERVER_HOST",
    "SERVER_SERVICE",
    "SNAPSHOT",
    "UNKNOWN_COMMAND",
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
    "i64_at",
    "is_intact",
    "key_at",
    "parse_position",
    "parts_at",
    "put_eops",
    "put_events",
    "put_part_size",
    "put_size",
    "scan_windows",
    "seal",
    "size_at",
    "skip",
    "source_at",
    "without_schema_ids",
]
