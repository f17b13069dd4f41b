"""What a relay and its consumers say to each other: Databus's events and checkpoints, byte by byte and key by key.

===============  =========================================================================
``_binary``      events, versions 1 and 2: writing, walking, choosing, checking
``_fields``      events as columns
``_schema``      a version of a source's schema, and its identity in events
``_checkpoint``  a consumer's place in the stream or in a bootstrap, in Databus's form
``_group``       reports of a group's members, and the answers
===============  =========================================================================

The relay writes it, its client reads it, and neither needs the other.
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
    put_eops,
    put_events,
    put_number,
    scan_windows,
    seal,
    size_at,
    skip,
    sound,
    source_at,
    u32_at,
)
from headgate.databus._checkpoint import (
    CATCHUP,
    CHECKPOINT_SCHEMA,
    CHECKPOINT_SOURCE,
    FIRST,
    SNAPSHOT,
    BootstrapPoint,
    Place,
    bootstrap_of,
    checkpoint_event,
    checkpoint_json,
    place_of,
)
from headgate.databus._fields import EventFields, event_fields, stretches_of
from headgate.databus._group import LARGEST_GROUP, Done, Owned
from headgate.databus._schema import Schema, avro_text

__all__ = [
    "CATCHUP",
    "CHECKPOINT_SCHEMA",
    "CHECKPOINT_SOURCE",
    "EOP_SIZE",
    "EOP_SOURCE",
    "FIRST",
    "LARGEST_GROUP",
    "PART_HEAD",
    "SNAPSHOT",
    "BootstrapPoint",
    "Done",
    "EventFields",
    "Owned",
    "Place",
    "Schema",
    "avro_text",
    "bootstrap_of",
    "checkpoint_event",
    "checkpoint_json",
    "convert_to_v1",
    "count_sources",
    "event_fields",
    "event_sizes",
    "fit",
    "i16_at",
    "i64_at",
    "place_of",
    "put_eops",
    "put_events",
    "put_number",
    "scan_windows",
    "seal",
    "size_at",
    "skip",
    "sound",
    "source_at",
    "stretches_of",
    "u32_at",
]
