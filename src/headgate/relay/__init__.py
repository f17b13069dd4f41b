"""The relay: one reader of a log, any number of consumers, in Databus's protocol.

It works as the article "Databus for MySQL" describes: a fetcher takes whole transactions from the binlog, writes each
row as an Avro record in a Databus event, and puts them under the transaction's SCN into a buffer, from which consumers
pull over HTTP, each at its own pace. The way through the room:

================  ====================================================================================================
``_sources``      what is read and under which names and ids: Databus's files, or TOML
``_scn``          SCNs: how transactions are numbered
``_events``       rows as Avro and back, events as JSON; which of them are wanted
``_writers``      rows of one table definition as events
``_assemble``     row images → whole transactions → windows of events
``_buffer``       the ring of windows, read from any SCN; ``_segments``: its pieces, in memory and in files
``_feeder``       the thread that follows a log into a buffer; ``_position``: how far it is, and its file
``_warm``         compiled loops, loaded before they are needed
``_selections``   what ids of sources mean, for all who ask for the same ones
``_relay``        all that belongs to the sources
``_counters``     what is counted; ``_usage``: of clients and connections, ``_given``: of what they were given
``_bootstrap``    rows for consumers that are new or too far behind
``_tenants``      who asks: tenants, their tokens and limits; ``_origins``: which web pages may
``_groups``       consumers that share partitions: who owns which, and how far it is
``_http``         what is served
================  ====================================================================================================

What is guaranteed, and why it survives kills, stands at the beginning of ``_feeder``, ``_buffer``, ``_scn``,
``archive._spool`` and ``_bootstrap._bootstrap``.
Events byte by byte are in ``databus``, consumers in Python in ``relay_client``.
"""

from headgate.relay._bootstrap._suppliers import Beginning, PartGoneError, PlanGoneError, Rows, Supplier, keyed_table
from headgate.relay._http._app import create_app
from headgate.relay._relay import Relay
from headgate.relay._scn import KINDS, Kind
from headgate.relay._sources import LogicalSource, PhysicalSource, RelayConfig, load_relay
from headgate.relay._tenants import Tenant
from headgate.relay_client import (
    CHECKPOINT_SECONDS,
    Access,
    CheckpointFile,
    CheckpointStore,
    Consumer,
    ConsumerOf,
    Event,
    GroupMember,
    RelayClient,
    Result,
    Retry,
    Share,
    Subscription,
)
from headgate.web import Token, is_loopback

__all__ = [
    "CHECKPOINT_SECONDS",
    "KINDS",
    "Access",
    "Beginning",
    "CheckpointFile",
    "CheckpointStore",
    "Consumer",
    "ConsumerOf",
    "Event",
    "GroupMember",
    "Kind",
    "LogicalSource",
    "PartGoneError",
    "PhysicalSource",
    "PlanGoneError",
    "Relay",
    "RelayClient",
    "RelayConfig",
    "Result",
    "Retry",
    "Rows",
    "Share",
    "Subscription",
    "Supplier",
    "Tenant",
    "Token",
    "create_app",
    "is_loopback",
    "keyed_table",
    "load_relay",
]
