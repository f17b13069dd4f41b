"""``[ui]``, ``[signals]`` and ``[notifications]``: how a pipeline and those around it speak to each other."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from headgate.config._model import Model

__all__ = ["KafkaChannelConfig", "NotificationsConfig", "SignalsConfig", "UiConfig", "WebhookConfig"]


class UiConfig(Model):
    """A page inside `headgate run` that shows how the pipeline is doing; `headgate ui` is the same beside it."""

    port: int | None = Field(default=None, ge=1, le=65_535, description="port of the page; none: there is no page")
    host: str = Field(
        default="127.0.0.1", min_length=1, description="address to listen on; any but a loopback one needs `token_file`"
    )
    token_file: str | None = Field(
        default=None,
        description="file with a token of 16 characters or more, which allows signals; a relative path starts at the"
        " working directory",
    )


class KafkaChannelConfig(Model):
    """A Kafka topic; the key of messages is the pipeline's name."""

    bootstrap: str = Field(min_length=1, description="`host:port` of a broker, or several, comma-separated")
    topic: str = Field(min_length=1, description="the topic")
    settings_file: str | None = Field(
        default=None,
        description="file of further settings of librdkafka, `name=value` in each line, passwords among them; a"
        " relative path starts at the working directory",
    )


class WebhookConfig(Model):
    """A web server for notifications: each is a POST of JSON; 200 to 299 means taken."""

    url: str = Field(description="`https://…` or `http://…`, without a password")
    token_file: str | None = Field(
        default=None,
        description="file with a token, sent as `Authorization: Bearer`; a relative path starts at the working"
        " directory",
    )
    timeout_seconds: int = Field(default=10, ge=1, le=600, description="seconds that one POST may take")

    @field_validator("url")
    @classmethod
    def _a_page(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            known = False
        if not known:
            raise ValueError("expected http://host/path or https://host/path")
        if parts.password is not None:
            raise ValueError("leave the password out of the URL: put a token into token_file")
        return url


class NotificationsConfig(Model):
    """Where the events of snapshots are told. What a channel does not take is kept in the ledger and sent again."""

    log: bool = Field(default=False, description="into the log of the run, a line of JSON each")
    table: bool = Field(default=False, description="into the Delta table `_headgate/notifications` of the lake")
    kafka: KafkaChannelConfig | None = Field(default=None, description="to a Kafka topic")
    webhook: WebhookConfig | None = Field(default=None, description="to a web server")
    wait_seconds: int = Field(
        default=10, ge=0, le=3600, description="seconds that the end of a run waits for channels that are slow or away"
    )


class SignalsConfig(Model):
    """Where signals come from, beside the inbox (`headgate signal`, the page) and `source.signal_table`."""

    kafka: KafkaChannelConfig | None = Field(
        default=None,
        description="a topic with one partition; messages whose key is the pipeline's name are its signals",
    )
