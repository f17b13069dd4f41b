"""headgate's extras: packages that only parts of headgate need, and the error if one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from headgate.errors import MissingExtraError

__all__ = ["EXTRAS", "missing_extra_error", "require_extra"]

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "spark": ("pyspark", "delta", "deltalake", "obstore", "pandas", "pyroaring"),
    "relay": ("starlette", "uvicorn", "anyio", "httptools", "fastavro", "prometheus_client"),
    "kafka": ("confluent_kafka",),
    "ui": ("jinja2", "starlette", "uvicorn", "anyio", "httptools", "prometheus_client", "obstore", "pyroaring"),
}
"""Extra → the modules imported from it. pyproject.toml lists the packages; a test compares the two."""


def require_extra(extra: str) -> None:
    """Check that an extra is installed.

    :raises MissingExtraError: one of its packages is missing.
    """
    for package in EXTRAS[extra]:
        if find_spec(package) is None:
            raise _error(extra, package)


def missing_extra_error(error: ModuleNotFoundError) -> Exception:
    """Return an error that names the first extra with the missing module; ``error`` itself if no extra has it."""
    package = (error.name or "").partition(".")[0]
    extras = [extra for extra, packages in EXTRAS.items() if package in packages]
    return _error(extras[0], package) if extras else error


def _error(extra: str, package: str) -> MissingExtraError:
    return MissingExtraError(
        f"{package} is not installed. This needs headgate[{extra}]: pip install 'headgate[{extra}]'", extra=extra
    )
