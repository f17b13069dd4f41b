"""Secrets of a pipeline, and texts without them.

Two nets, because a text may come from elsewhere (a log, an error of a library). Values that the configuration and the
environment name are removed wherever they occur, also percent-encoded or escaped as in JSON. What looks like a secret
is removed by its form: user and password in a URL, MySQL's accounts, ``Authorization`` headers, ``password=…``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus

from headgate.engine import is_secret
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.config import PipelineConfig

__all__ = ["HIDDEN", "Secrets"]

HIDDEN: Final = "***"
"""What stands for a secret."""
_SHORTEST: Final = 4
"""Letters of a secret that the configuration names. A shorter one is part of every text, and protects nothing."""
_SHORTEST_VARIABLE: Final = 8
"""Letters of an environment variable's secret: a variable such as ``USE_TOKEN=true`` only has such a name."""
_FORMS: Final = (
    (re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)[^\s\"'<>]+@"), rf"\g<1>{HIDDEN}@"),
    (re.compile(r"'[^'\n]+'@'"), f"'{HIDDEN}'@'"),
    (re.compile(r"(?i)\b(bearer|basic) +[!-~]{8,}"), rf"\g<1> {HIDDEN}"),
    (
        re.compile(r"(?i)((?:password|passwd|secret|token|api[_-]?key)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&}\]]+"),
        rf"\g<1>{HIDDEN}",
    ),
)
"""Forms of secrets in texts, and what replaces them."""


class Secrets:
    """Values that must not leave this machine.

    :param values: secrets in plain text. Empty ones and those of fewer than four letters are ignored.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in values if len(value) >= _SHORTEST for form in _spellings(value)}
        self._known = re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True)))) if forms else None

    @classmethod
    def of(cls, config: PipelineConfig | None = None) -> Secrets:
        """Return the secrets of this process's environment, and those that a configuration has or names."""
        variables = (value for name, value in os.environ.items() if _is_secret_value(name, value))
        values = {value for value in variables if len(value) >= _SHORTEST_VARIABLE}
        return cls(values if config is None else {*values, *_of_source(config), *_of_interfaces(config)})

    def hide(self, text: str) -> str:
        """Return a text without secrets."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for form, replacement in _FORMS:
            text = form.sub(replacement, text)
        return text

    def hide_all(self, value: Any) -> Any:
        """Return a JSON value without secrets: in texts, in names, and those that their names tell."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, Mapping):
            return {
                self.hide(str(name)): HIDDEN if _is_secret_value(str(name), one) else self.hide_all(one)
                for name, one in value.items()
            }
        return [self.hide_all(one) for one in value] if isinstance(value, (list, tuple)) else value


def _is_secret_value(name: str, value: object) -> bool:
    """Return whether a text is a secret by its name, which does not name where the secret is."""
    return isinstance(value, str) and is_secret(name) and not name.lower().endswith(("_env", "_file"))


def _spellings(value: str) -> Iterator[str]:
    yield value
    yield from (quote(value, safe=""), quote(value), quote_plus(value))
    yield from (json.dumps(value, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))


def _of_source(config: PipelineConfig) -> Iterator[str]:
    """Yield the secrets of ``[source]``. What cannot be read is in no text either."""
    from headgate.mysql import ConnectionSettings

    source = config.source
    with suppress(HeadgateError, OSError, UnicodeDecodeError):
        yield ConnectionSettings.from_url(source.url, **source.passwords).secret.resolve()
    yield from _of_file(source.relay_token_file)
    yield from _of_file(source.mask_key_file)
    yield os.environ.get(source.mask_key_env or "", "")


def _of_interfaces(config: PipelineConfig) -> Iterator[str]:
    """Yield the secrets of the other sections."""
    webhook, target = config.notifications.webhook, config.target.kafka
    yield from _of_file(config.ui.token_file)
    yield from (value for name, value in config.spark.items() if is_secret(name))
    if webhook is not None:
        yield from _of_file(webhook.token_file)
        yield webhook.url.partition("://")[2].partition("/")[2]  # chat systems have the secret in the path
    if target is not None:
        login = os.environ.get(target.registry_auth_env or "", "")
        yield from (login, login.partition(":")[2])
    for kafka in (target, config.signals.kafka, config.notifications.kafka):
        if kafka is not None and kafka.settings_file is not None:
            yield from _of_kafka(kafka.bootstrap, kafka.settings_file)


def _of_file(file: str | None) -> Iterator[str]:
    if file is not None:
        with suppress(OSError, UnicodeDecodeError):
            yield Path(file).expanduser().read_text("utf-8").strip()


def _of_kafka(bootstrap: str, settings_file: str) -> Iterator[str]:
    from headgate.control import KafkaCluster

    with suppress(HeadgateError):
        settings = KafkaCluster(bootstrap, settings_file).settings()
        yield from (str(value) for name, value in settings.items() if is_secret(name) or "jaas" in name)
