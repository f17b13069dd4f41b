"""Parsing and checking of pipeline files; each mistake becomes one line."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from headgate.config._explain import checked
from headgate.config._pipeline import PipelineConfig
from headgate.config._source import SnapshotMode, SourceConfig
from headgate.errors import ConfigError
from headgate.parsing import parse_toml

__all__ = ["load_config", "parse_config", "with_snapshot_mode"]

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
        text = file.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}; headgate init writes one") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8, so it is not TOML") from None
    return parse_config(text, where=str(file))


def parse_config(text: str, *, where: str = "pipeline.toml", folder: Path | None = None) -> PipelineConfig:
    """Check a pipeline file's text.

    :param where: the file's name, for messages.
    :param folder: start of its relative paths; by default the working directory.
    :raises ConfigError: not TOML, or a wrong key or value.
    """
    try:
        value = parse_toml(text)
    except ValueError as error:
        raise ConfigError(f"{where} is not TOML: {error}") from None
    return checked(PipelineConfig, value, where=f"{where}: ", folder=folder or Path.cwd())


def with_snapshot_mode(config: PipelineConfig, mode: SnapshotMode | None) -> PipelineConfig:
    """Return the configuration with another ``source.snapshot_mode``; None: as it is.

    :raises ConfigError: the mode does not go together with another setting of ``[source]``.
    """
    if mode is None:
        return config
    values = {**config.source.model_dump(by_alias=True, exclude_unset=True), "snapshot_mode": mode}
    return config.model_copy(update={"source": checked(SourceConfig, values, where=f"snapshot_mode {mode}: ")})
