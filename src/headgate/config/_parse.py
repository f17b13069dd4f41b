"""Parsing and checking of pipeline files; each mistake becomes one line."""

from __future__ import annotations

import logging
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headgate.config._explain import explain
from headgate.config._pipeline import PipelineConfig
from headgate.errors import ConfigError

__all__ = ["load_config", "parse_config"]

log = logging.getLogger("headgate")


def load_config(path: str | os.PathLike[str]) -> PipelineConfig:
    """Read and check a pipeline file. Relative paths in it start at the working directory.

    :raises ConfigError: no such file, not TOML, or a wrong key or value.

    >>> config = headgate.load_config("pipeline.toml")
    >>> config.name, config.source.tables
    ('shop', ('shop.*', '!shop.tmp_*'))
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}; headgate init writes one") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8, so it is not TOML") from None
    return parse_config(text, where=str(file))


def parse_config(text: str, *, where: str = "pipeline.toml", folder: Path | None = None) -> PipelineConfig:
    """Check a pipeline file's text. Log a warning about a key that no longer has an effect.

    :param where: the file's name, for messages.
    :param folder: start of its relative paths; by default the working directory.
    :raises ConfigError: not TOML, or a wrong key or value.
    """
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not TOML: {error}") from None
    _remove_retired(value, where)
    _resolve(value, "target", "path", folder or Path.cwd())
    for key in ("password_file", "mask_key_file", "relay_token_file", "relay_ca_file"):
        _resolve(value, "source", key, folder or Path.cwd())
    _resolve(value, "ui", "token_file", folder or Path.cwd())
    for section in ("notifications", "signals", "target"):
        _resolve(value, f"{section}.kafka", "settings_file", folder or Path.cwd())
    _resolve(value, "notifications.webhook", "token_file", folder or Path.cwd())
    try:
        return PipelineConfig.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(error, PipelineConfig)}") from None


def _remove_retired(value: dict[str, Any], where: str) -> None:
    """Remove ``source.server_ids``: bounded dumps have no server id, and others a random one."""
    source = value.get("source")
    if isinstance(source, dict) and source.pop("server_ids", None) is not None:
        log.warning("%s: source.server_ids does nothing; remove it", where)


def _resolve(value: dict[str, Any], section: str, key: str, folder: Path) -> None:
    """Make a relative path absolute; URIs (``s3://…``, ``file:/…``) stay as they are."""
    table: Any = value
    for name in section.split("."):
        table = table.get(name) if isinstance(table, dict) else None
    path = table.get(key) if isinstance(table, dict) else None
    if isinstance(path, str) and path and not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path):
        table[key] = os.path.normpath(folder / os.path.expanduser(path))  # noqa: PTH111 - leaves ~nobody as it is
