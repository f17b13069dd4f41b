"""Connection settings of a Kafka cluster, and what its brokers refuse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.files import file_errors

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

__all__ = ["KafkaCluster", "Refusals"]


class Refusals:
    """Why connections fail that the brokers, or the client, refuse: a certificate, a user. No time mends that.

    librdkafka reports it apart from requests, which only time out; a client's ``poll`` hands the reports on.
    """

    def __init__(self) -> None:
        self.reason = ""
        """Of the last one; empty: there was none."""

    def note(self, error: KafkaError) -> None:
        """Take a report (``error_cb``)."""
        from confluent_kafka import KafkaError as Codes

        if error.code() in (Codes._SSL, Codes._AUTHENTICATION):
            self.reason = error.str()


@dataclass(frozen=True)
class KafkaCluster:
    """The name of a file with secrets, never the secrets: the file is read where a client is created.

    :param bootstrap: ``host:port``, or several, comma-separated.
    :param settings_file: further settings of librdkafka (its CONFIGURATION.md), ``name=value`` lines; empty lines and
        ``#`` lines are ignored.
    :param answer_seconds: time limit of a broker's answer.
    """

    bootstrap: str
    settings_file: str | None = None
    answer_seconds: float = 10.0

    def creation_command(self, topic: str, *options: str) -> str:
        """Return the command that creates a topic."""
        return " ".join(("kafka-topics --bootstrap-server", self.bootstrap, "--create --topic", topic, *options))

    def settings(self, refusals: Refusals | None = None) -> dict[str, Any]:
        """Return the settings of a confluent-kafka client. They may hold secrets: pass them to nothing else.

        :param refusals: takes the client's.
        :raises ConfigError: the file cannot be read.
        """
        defaults: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "log_level": 0}
        if refusals is not None:
            defaults["error_cb"] = refusals.note
        if self.settings_file is None:
            return defaults
        with file_errors(f"Kafka's settings_file {self.settings_file} cannot be read"):
            text = Path(self.settings_file).read_text(encoding="utf-8")
        lines = [line.strip() for line in text.splitlines()]
        pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
        return {**defaults, **{name.strip(): value.strip() for name, _, value in pairs}}
