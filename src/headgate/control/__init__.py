"""Signals to a running pipeline and notifications from it, in Debezium's form.

Signals: from any channel, checked and put into the inbox. Notifications: events of snapshots, and the channels that
send them.
"""

from __future__ import annotations

from headgate.control._dispatcher import Channel, NotificationDispatcher
from headgate.control._events import BatchFacts, Notification, OpenSnapshots, batch_notifications
from headgate.control._kafka import KafkaChannel
from headgate.control._kafka_client import KafkaCluster, Refusals
from headgate.control._log import LogChannel
from headgate.control._outcomes import OUTCOMES, SignalAnswer, SignalKey, SignalState
from headgate.control._signals import (
    Condition,
    Outbox,
    Signal,
    check_filter,
    parse_signal,
    sending_us,
    signal_file,
    submit,
)
from headgate.control._table import SIGNAL_COLUMNS, inbox_files, inserted_rows
from headgate.control._topic import KafkaTopic, NoForwarder, SignalForwarder, check_topic
from headgate.control._webhook import WebhookChannel

__all__ = [
    "OUTCOMES",
    "SIGNAL_COLUMNS",
    "BatchFacts",
    "Channel",
    "Condition",
    "KafkaChannel",
    "KafkaCluster",
    "KafkaTopic",
    "LogChannel",
    "NoForwarder",
    "Notification",
    "NotificationDispatcher",
    "OpenSnapshots",
    "Outbox",
    "Refusals",
    "Signal",
    "SignalAnswer",
    "SignalForwarder",
    "SignalKey",
    "SignalState",
    "WebhookChannel",
    "batch_notifications",
    "check_filter",
    "check_topic",
    "inbox_files",
    "inserted_rows",
    "parse_signal",
    "sending_us",
    "signal_file",
    "submit",
]
