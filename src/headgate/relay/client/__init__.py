"""Consumers of a relay, in Python.

================  ==================================================================
``_consumer``     a consumer: callbacks and their results
``_callbacks``    calls of consumers, one by one or in parallel
``_retry``        intervals and sizes; pauses and limits of retries
``_transport``    requests to a relay, or to one of several
``_reading``      requests for events and rows, and the parsing of events
``states``        states of clients, partitions and members, and what follows from what
``_client``       from a relay to callbacks: back-off, checkpoints, switching relays
``_bootstrap``    a bootstrap: rows before the stream
``_checkpoints``  checkpoint files in Databus's form
``_member``       a consumer as member of a group
================  ==================================================================
"""

from headgate.relay.client._checkpoints import CheckpointFile, CheckpointStore
from headgate.relay.client._client import RelayClient
from headgate.relay.client._consumer import Consumer, Event, Result, Subscription
from headgate.relay.client._member import ConsumerOf, GroupMember
from headgate.relay.client._reading import Reader, Share
from headgate.relay.client._retry import ClientTuning, Retry
from headgate.relay.client._transport import Access, RelayTransport

__all__ = [
    "Access",
    "CheckpointFile",
    "CheckpointStore",
    "ClientTuning",
    "Consumer",
    "ConsumerOf",
    "Event",
    "GroupMember",
    "Reader",
    "RelayClient",
    "RelayTransport",
    "Result",
    "Retry",
    "Share",
    "Subscription",
]
