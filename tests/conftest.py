"""What every test shares; the fixtures live in the plugins ``fix_*.py`` beside this file."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent

pytest_plugins = [f"tests.{path.stem}" for path in sorted(HERE.glob("fix_*.py"))]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Random order, but what needs no server first: the common failures show at once."""
    items.sort(key=lambda item: HERE / "integration" in item.path.parents)
