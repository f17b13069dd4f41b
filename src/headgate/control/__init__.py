"""What users ask of a running pipeline, and what it tells them, in the form of Debezium's signals and notifications.

Signals: whatever way they come, checked and put into the inbox. Notifications: events of snapshots, and the channels
that they go out by.
"""

from __future__ import annotations

from headgate.control._courier import Channel, Courier
from headgate.control._events import BatchFacts, Notification, OpenSnapshots, tell
from headgate.control._kafka import KafkaChannel
from headgate.control._kafka_client import KafkaCluster
from headgate.control._log import LogChannel
from headgate.control._signals import (
    SIGNAL_TYPES,
    Condition,
    Outbox,
    Signal,
    check_filter,
    parse_signal,
    signal_file,
    submit,
)
from headgate.control._table import SIGNAL_COLUMNS, inbox_files, inserted_rows
from headgate.control._topic import KafkaSignals, KafkaTopic, Polled, TopicPosition, check_topic
from headgate.control._webhook import WebhookChannel

__all__ = [
    "SIGNAL_COLUMNS",
    "SIGNAL_TYPES",
    "BatchFacts",
    "Channel",
    "Condition",
    "Courier",
    "KafkaChannel",
    "KafkaCluster",
    "KafkaSignals",
    "KafkaTopic",
    "LogChannel",
    "Notification",
    "OpenSnapshots",
    "Outbox",
    "Polled",
    "Signal",
    "TopicPosition",
    "WebhookChannel",
    "check_filter",
    "check_topic",
    "inbox_files",
    "inserted_rows",
    "parse_signal",
    "signal_file",
    "submit",
    "tell",
]
