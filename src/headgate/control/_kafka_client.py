"""How to reach a Kafka cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.errors import ConfigError

__all__ = ["KafkaCluster"]


@dataclass(frozen=True)
class KafkaCluster:
    """The name of a file with secrets, never the secrets: it is read where a client is made.

    :param bootstrap: ``host:port``, or several, comma-separated.
    :param settings_file: further settings of librdkafka (its CONFIGURATION.md), ``name=value`` lines; empty ones and
        ``#`` are left out.
    """

    bootstrap: str
    settings_file: str | None = None

    def settings(self) -> dict[str, Any]:
        """What a client of confluent-kafka is made with; may hold secrets, so it goes nowhere else.

        :raises ConfigError: the file cannot be read.
        """
        own: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "log_level": 0}
        if self.settings_file is None:
            return own
        try:
            text = Path(self.settings_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(f"Kafka's settings_file {self.settings_file} cannot be read: {reason}") from None
        lines = [line.strip() for line in text.splitlines()]
        pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
        return {**own, **{name.strip(): value.strip() for name, _, value in pairs}}
