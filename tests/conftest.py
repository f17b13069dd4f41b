"""What every test shares; the fixtures live in the plugins ``fix_*.py`` beside this file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine and about kernels that are compiled at their first call,
# not about the code. CI looks at the same examples every time; elsewhere they are new ones.
settings.register_profile(
    "headgate",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("headgate")

HERE = Path(__file__).parent

pytest_plugins = [f"tests.{path.stem}" for path in sorted(HERE.glob("fix_*.py"))]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Random order, but what needs no server first: the common failures show at once."""
    items.sort(key=lambda item: HERE / "integration" in item.path.parents)
