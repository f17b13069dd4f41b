"""Consumers of a relay, in Python.

================  ==================================================================
``_consumer``     a consumer: callbacks and what they answer
``_callbacks``    consumers called one by one or side by side
``_retry``        how failures are met
``_transport``    requests to a relay, or to one of several
``_reading``      what is asked of a relay, and events taken apart
``_client``       from a relay to callbacks: states, back-off, checkpoints, switching relays
``_bootstrap``    rows first
``_checkpoints``  where checkpoints are kept, in Databus's files
``_member``       a consumer as member of a group
================  ==================================================================
"""

from headgate.relay_client._checkpoints import CheckpointFile, CheckpointStore
from headgate.relay_client._client import CHECKPOINT_SECONDS, RelayClient
from headgate.relay_client._consumer import Consumer, Event, Result, Subscription
from headgate.relay_client._member import ConsumerOf, GroupMember
from headgate.relay_client._reading import Share
from headgate.relay_client._retry import Retry
from headgate.relay_client._transport import Access

__all__ = [
    "CHECKPOINT_SECONDS",
    "Access",
    "CheckpointFile",
    "CheckpointStore",
    "Consumer",
    "ConsumerOf",
    "Event",
    "GroupMember",
    "RelayClient",
    "Result",
    "Retry",
    "Share",
    "Subscription",
]
