"""``[ui]``, ``[signals]`` and ``[notifications]``: a pipeline's interfaces for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, field_validator

from headgate.config._model import Conflict, FilePath, KafkaClient, Model, split_url

__all__ = [
    "KafkaChannelConfig",
    "NotificationTopicConfig",
    "NotificationsConfig",
    "SignalTopicConfig",
    "SignalsConfig",
    "UiConfig",
    "WebhookConfig",
]


class UiConfig(Model):
    """A page inside `headgate run` that shows the pipeline's status; `headgate ui` serves it as a separate process."""

    port: int | None = Field(default=None, ge=1, le=65_535, description="port of the page; without it there is no page")
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="address to listen on; any except a loopback address needs `token_file`",
    )
    token_file: FilePath | None = Field(
        default=None,
        description="file with a token of 16 characters or more, which allows signals; a relative path starts at the"
        " working directory",
    )

    def _conflicts(self) -> Iterator[Conflict]:
        for name in ("host", "token_file") if self.port is None else ():
            if getattr(self, name) != UiConfig.model_fields[name].default:
                yield f"port {name}", f"{name} needs port: without it there is no page"


class KafkaChannelConfig(KafkaClient):
    """A Kafka topic; the key of messages is the pipeline's name."""

    topic: str = Field(min_length=1, description="the topic")


class SignalTopicConfig(KafkaChannelConfig):
    """A Kafka topic with signals, as the option `signal_topic`."""

    key: str = Field(min_length=1, description="the key of this pipeline's messages: its name")


class NotificationTopicConfig(KafkaChannelConfig):
    """A Kafka topic for notifications."""

    format: Literal["json", "json-schema"] = Field(
        default="json",
        description="`json-schema` puts Kafka Connect's schema next to keys and values, as `JsonConverter` with"
        " `schemas.enable` does",
    )


class WebhookConfig(Model):
    """A web server for notifications: each is a POST of JSON; a status of 200 to 299 means accepted."""

    url: str = Field(description="`https://…` or `http://…`, without a password")
    token_file: FilePath | None = Field(
        default=None,
        description="file with a token, sent as `Authorization: Bearer`; a relative path starts at the working"
        " directory",
    )
    timeout_seconds: int = Field(default=10, ge=1, le=600, description="seconds that one POST may take")

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        parts = split_url(url, "http", "https")
        if parts is None:
            raise ValueError("expected http://host/path or https://host/path")
        if parts.password is not None:
            raise ValueError("leave the password out of the URL: put a token into token_file")
        return url


class NotificationsConfig(Model):
    """Channels for the events of snapshots. What a channel does not accept stays in the ledger and is sent again."""

    log: bool = Field(default=False, description="write to the log of the run, a line each that ends in its JSON")
    table: bool = Field(default=False, description="write to the Delta table `_headgate/notifications` of the lake")
    kafka: NotificationTopicConfig | None = Field(default=None, description="send to a Kafka topic")
    webhook: WebhookConfig | None = Field(default=None, description="send to a web server")
    wait_seconds: int = Field(
        default=10, ge=0, le=3600, description="seconds that the end of a run waits for slow or unavailable channels"
    )


class SignalsConfig(Model):
    """Signals from elsewhere than the inbox (`headgate signal`, the page) and `source.signal_table`."""

    kafka: KafkaChannelConfig | None = Field(
        default=None,
        description="a topic with one partition; messages whose key is the pipeline's name are its signals",
    )

    def topic(self, pipeline: str) -> SignalTopicConfig | None:
        """Return the topic, and the key of the messages for the pipeline of this name; None: there is no topic."""
        kafka = self.kafka
        return None if kafka is None else SignalTopicConfig.model_validate({**dict(kafka), "key": pipeline})
