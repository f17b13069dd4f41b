"""Heartbeats of the Kafka sink: messages that say that the pipeline lives, also while it has nothing else to send.

A thread of their own sends them, through a producer of their own that is outside of any transaction. So they delay no
batch, brokers that are away end no run, and a batch that fails does not stop them. A heartbeat has no position: it does
not say what the pipeline has read. Key and value are Debezium's (``io.debezium.heartbeat.HeartbeatImpl``).
"""

from __future__ import annotations

import time

from headgate.errors import HeadgateError, Transient
from headgate.kafka._cluster import HeartbeatSender
from headgate.retrying import Retrying, RetryPolicy, Stage

__all__ = ["Heartbeats"]


class Heartbeats(Retrying):
    """The thread: one heartbeat at the start, and one after each pause, until :meth:`stop`.

    Of several failures in a row only the first is logged, and the recovery. An error that a retry cannot mend, such as
    a missing right to write, ends the heartbeats, but not the run.

    :param prefix: ``topic_prefix``, the name of the server in each key.
    :param seconds: the pause, also after a failure.
    """

    def __init__(self, prefix: str, seconds: float, sender: HeartbeatSender) -> None:
        super().__init__("headgate-heartbeats", f"heartbeats of {prefix}", RetryPolicy.every(seconds))
        self._key, self._seconds, self._sender = {"serverName": prefix}, seconds, sender

    def start(self) -> None:
        """Start sending."""
        self._begin()

    def stop(self) -> None:
        """Stop sending."""
        self._end()
        self._sender.close()

    def _work(self) -> None:
        value = {"ts_ms": time.time_ns() // 1_000_000}
        self._sender.send(self._key, value, self._stop.is_set)
        self._resume()
        self._stop.wait(self._seconds)

    def _is_logged(self, error: HeadgateError) -> bool:
        return self.stage is Stage.WORKING or not isinstance(error, Transient)

    def _describe(self, error: HeadgateError) -> str:
        text = super()._describe(error)
        return text if isinstance(error, Transient) else f"{text}; the run goes on without heartbeats"
