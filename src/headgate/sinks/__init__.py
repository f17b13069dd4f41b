"""Sinks: apply a batch of the stream to Delta tables."""

from __future__ import annotations

from headgate.carrier import Batch
from headgate.sinks._case import Policy
from headgate.sinks._decide import LACKS_ROWS
from headgate.sinks._kafka_cluster import check_brokers
from headgate.sinks._ledger_state import Divergence
from headgate.sinks._misfits import RESERVED_ANYWHERE, hook_name, refiltered, rehooked
from headgate.sinks._preload import preload
from headgate.sinks._report import BatchReport, Progress
from headgate.sinks._topic_names import TopicNames
from headgate.sinks._writer import BatchWriter

__all__ = [
    "LACKS_ROWS",
    "RESERVED_ANYWHERE",
    "Batch",
    "BatchReport",
    "BatchWriter",
    "Divergence",
    "Policy",
    "Progress",
    "TopicNames",
    "check_brokers",
    "hook_name",
    "preload",
    "refiltered",
    "rehooked",
]
