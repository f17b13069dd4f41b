"""Rows as events, and back: Avro schemas and records, Databus's events in both versions. Bytes and arrays only.

============  ===========================================================================
``_schemas``  Avro schemas of table definitions, in versions; the registry folder
``_avro``     rows of Arrow columns as Avro binary
``_json``     events as JSON lines
``_decode``   rows in Avro binary as Arrow columns
``_choice``   sources and Databus's key filters; ``_where``: predicates over ``_rows``
============  ===========================================================================
"""

from headgate.relay.server.events._avro import EncodedRows, RowEncoder
from headgate.relay.server.events._choice import (
    KINDS,
    RANGE,
    Choice,
    choice_of,
    digest_of,
    first_window_of,
    gather,
    gather_smaller,
    ranges_of,
    select,
)
from headgate.relay.server.events._decode import RowDecoder
from headgate.relay.server.events._json import json_lines
from headgate.relay.server.events._schemas import METADATA, Registry, field_attributes, generate, key_fields
from headgate.relay.server.events._where import NO_ROW_FILTERS, CompiledFilters, SourceFilter, compile_filters

__all__ = [
    "KINDS",
    "METADATA",
    "NO_ROW_FILTERS",
    "RANGE",
    "Choice",
    "CompiledFilters",
    "EncodedRows",
    "Registry",
    "RowDecoder",
    "RowEncoder",
    "SourceFilter",
    "choice_of",
    "compile_filters",
    "digest_of",
    "field_attributes",
    "first_window_of",
    "gather",
    "gather_smaller",
    "generate",
    "json_lines",
    "key_fields",
    "ranges_of",
    "select",
]
