"""The file of a running pipeline, which is loaded again when it changes."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from headgate.config._parse import load_config
from headgate.config._pipeline import PipelineConfig
from headgate.errors import ConfigError

__all__ = ["ConfigFile", "check_change"]

log = logging.getLogger("headgate")


class ConfigFile:
    """A pipeline file that may change while its pipeline runs; ``config`` is the configuration in effect.

    A running pipeline applies changes of ``[source]`` and ``[tables]``. If the file is invalid, or changes anything
    else, it is refused with one warning, and the previous configuration stays in effect.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """:raises ConfigError: as :func:`load_config`."""
        self.path = Path(path)
        self._seen_fingerprint = self._fingerprint()
        self.config = load_config(path)

    def load_change(self, *, requested: bool = False) -> PipelineConfig | None:
        """Return the new configuration, if the file has changed and is valid; :meth:`take` puts it into effect.

        :param requested: read the file even if it looks the same.
        """
        fingerprint = self._fingerprint()
        if fingerprint == self._seen_fingerprint and not requested:
            return None
        self._seen_fingerprint = fingerprint
        try:
            config = load_config(self.path)
            check_change(self.config, config)
        except ConfigError as error:
            self.refuse(error.message)
            return None
        return config if config != self.config else None

    def take(self, config: PipelineConfig) -> None:
        """Put a configuration into effect."""
        self.config = config
        log.info("%s: the new configuration is in effect", self.path)

    def refuse(self, reason: str) -> None:
        """Warn that a change has no effect."""
        log.warning("%s changed and is not followed: %s", self.path, reason)

    def _fingerprint(self) -> tuple[int, int, int] | None:
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


def check_change(before: PipelineConfig, after: PipelineConfig) -> None:
    """Check that a running pipeline can apply ``after``.

    :raises ConfigError: a section other than ``[source]`` and ``[tables]`` differs.
    """
    others = [name for name in PipelineConfig.model_fields if name not in ("source", "tables")]
    fixed = [name for name in others if getattr(after, name) != getattr(before, name)]
    if fixed:
        raise ConfigError(f"{fixed[0]} changed: restart the pipeline to apply it")
