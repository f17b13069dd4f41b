"""Connection settings of a Kafka cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.files import file_errors

__all__ = ["KafkaCluster"]


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

    def settings(self) -> dict[str, Any]:
        """Return the settings of a confluent-kafka client. They may hold secrets: pass them to nothing else.

        :raises ConfigError: the file cannot be read.
        """
        defaults: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "log_level": 0}
        if self.settings_file is None:
            return defaults
        with file_errors(f"Kafka's settings_file {self.settings_file} cannot be read"):
            text = Path(self.settings_file).read_text(encoding="utf-8")
        lines = [line.strip() for line in text.splitlines()]
        pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
        return {**defaults, **{name.strip(): value.strip() for name, _, value in pairs}}
