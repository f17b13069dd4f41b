"""The relay: one reader of a log, any number of consumers, in Databus's protocol.

It works as the article "Databus for MySQL" describes: a fetcher takes whole transactions from the binlog, writes each
row as an Avro record in a Databus event, and puts them under the transaction's SCN into a buffer, from which consumers
pull over HTTP, each at its own pace. The way through the room:

==================  ==================================================================================================
``_sources``        what is read and under which names and ids: Databus's files, or TOML
``_schemas``        Avro schemas of table definitions, in versions; the registry folder
``_scn``            SCNs: how transactions are numbered
``_avro``           rows of Arrow columns as Avro binary
``_events``         events byte by byte, versions 1 and 2: writing, walking, choosing, checking
``_assemble``       row images → whole transactions → windows of events
``_segments``       pieces of the buffer, in memory and in files
``_choice``         sources and Databus's key filters
``_buffer``         the ring of windows, read from any SCN
``_feeder``         the thread that follows a log into a buffer, and its state
``_requests``       what consumers ask for, checked
``_fields _json``   events as columns, events as JSON lines
``_app``            HTTP
``_checkpoints``    a consumer's checkpoint, in Databus's form and files
``_client``         a consumer in Python: callbacks, back-off
==================  ==================================================================================================

What is guaranteed, and why it survives kills, stands at the beginning of ``_feeder``, ``_buffer`` and ``_scn``.
"""

from headgate.relay._app import create_app
from headgate.relay._checkpoints import CheckpointFile
from headgate.relay._client import Consumer, Event, RelayClient, Result
from headgate.relay._relay import Relay
from headgate.relay._scn import KINDS, Kind
from headgate.relay._sources import LogicalSource, PhysicalSource, RelayConfig, load_relay

__all__ = [
    "KINDS",
    "CheckpointFile",
    "Consumer",
    "Event",
    "Kind",
    "LogicalSource",
    "PhysicalSource",
    "Relay",
    "RelayClient",
    "RelayConfig",
    "Result",
    "create_app",
    "load_relay",
]
