"""The relay: one binlog reader per source, any number of consumers, in Databus's protocol.

It works as the article "Databus for MySQL" describes. A fetcher takes whole transactions from the binlog, writes each
row as an Avro record in a Databus event, and puts them under the transaction's SCN into a buffer. Consumers pull from
the buffer over HTTP, each at its own pace. Modules:

================  ====================================================================================================
``_sources``      the configuration; ``_load``, ``_toml``: from Databus's files, or TOML; ``_names``: names and ids
``_scn``          SCNs: how transactions are numbered
``events``        rows as Avro and back, events as JSON; filters of consumers
``_writers``      rows of one table definition as events
``_assemble``     row images → whole transactions → windows of events
``_buffer``       a ring of windows, readable from any SCN; ``_segments``: its pieces, in memory and in files;
                  ``_cursor``: reads of them
``_feeder``       the thread that copies a binlog to a buffer; ``_position``: its position and state file
``_warm``         compiled loops, loaded before they are needed
``_relay``        the buffers, feeders and schemas of all sources
``_counters``     statistics: of requests, clients, connections and delivered events
``_recent``       a cache
``bootstrap``     table rows for consumers that are new or too far behind
``_tenants``      tenants, their tokens and limits
``_groups``       consumers that share partitions: owners and checkpoints
``_http``         the HTTP server and its commands
================  ====================================================================================================

``_feeder``, ``_buffer``, ``_scn``, ``archive._spool`` and ``bootstrap._bootstrap`` begin with their guarantees, which
survive kills. ``databus`` defines events byte by byte; ``relay.client`` has consumers in Python.
"""

from headgate.relay.server._assemble import Assembler, Finished
from headgate.relay.server._buffer import BufferLimits, EventBuffer
from headgate.relay.server._counters import (
    INBOUND_CONNECTIONS,
    OUTBOUND_CONNECTIONS,
    REQUESTS,
    SERVER,
    Counters,
    SubjectKind,
)
from headgate.relay.server._cursor import EventBatch
from headgate.relay.server._groups import Group, GroupFolder, GroupLimits, GroupRefusedError
from headgate.relay.server._http._app import create_app
from headgate.relay.server._http._gate import Gate
from headgate.relay.server._load import load_relay
from headgate.relay.server._names import SourceNames
from headgate.relay.server._relay import Relay
from headgate.relay.server._scn import GenerationMap, Scn, WholeTransactions, scn_after_reset
from headgate.relay.server._segments import Windows
from headgate.relay.server._sources import LogicalSource, PhysicalSource, RelayConfig, RelayLimits, RelayTimes
from headgate.relay.server._tenants import Tenant

__all__ = [
    "INBOUND_CONNECTIONS",
    "OUTBOUND_CONNECTIONS",
    "REQUESTS",
    "SERVER",
    "Assembler",
    "BufferLimits",
    "Counters",
    "EventBatch",
    "EventBuffer",
    "Finished",
    "Gate",
    "GenerationMap",
    "Group",
    "GroupFolder",
    "GroupLimits",
    "GroupRefusedError",
    "LogicalSource",
    "PhysicalSource",
    "Relay",
    "RelayConfig",
    "RelayLimits",
    "RelayTimes",
    "Scn",
    "SourceNames",
    "SubjectKind",
    "Tenant",
    "WholeTransactions",
    "Windows",
    "create_app",
    "load_relay",
    "scn_after_reset",
]
