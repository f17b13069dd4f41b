"""What every test shares; the fixtures live in the plugins ``fix_*.py`` beside this file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine and about kernels that are compiled at their first call,
# not about the code. CI looks at the same examples every time; elsewhere they are new ones.
settings.register_profile(
    "headgate", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("headgate")

HERE = Path(__file__).parent
KAFKA = "kafka"
KAFKA_SECONDS = 1200.0
"""Limit of all tests with Kafka, which one worker runs, as if they were one test."""

pytest_plugins = [f"tests.{path.stem}" for path in sorted(HERE.glob("fix_*.py"))]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that share a fixture of their module go to one worker, which makes it once. So do the tests with Kafka: a
    broker and a registry of each worker would take twenty seconds of processor time to start, and some more to idle.
    """
    known = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    if "kafka_broker" in known or "schema_registry" in known:
        item.add_marker(pytest.mark.xdist_group(KAFKA))
    elif any(definitions[-1].scope in ("module", "class") for definitions in known.values()):
        item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(HERE))))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Random order, but what needs no server first: the common failures show at once. Then the modules with the longest
    tests, and the tests with Kafka, so that no worker is left alone with them in the end.
    """
    longest: dict[Path, float] = {}
    for item in items:
        limit = item.get_closest_marker("timeout")
        longest[item.path] = max(longest.get(item.path, 0), limit.args[0] if limit else 0)

    def seconds(item: pytest.Item) -> float:
        group = item.get_closest_marker("xdist_group")
        return KAFKA_SECONDS if group is not None and group.args == (KAFKA,) else longest[item.path]

    items.sort(key=lambda item: (HERE / "integration" in item.path.parents, -seconds(item)))
    if items and getattr(items[0].config.option, "loadgroup", False):  # a worker of --dist loadgroup
        for item in items:
            _name_group(item)


def _name_group(item: pytest.Item) -> None:
    """The group is part of the id by which xdist schedules the test; xdist 3.8 writes it where pytest 9.2 no longer
    looks, so that groups were spread over all workers, without a word.
    """
    group = item.get_closest_marker("xdist_group")
    if group is None or item.nodeid.endswith(f"@{group.args[0]}"):
        return
    item._id = type(item.id).parse(f"{item.nodeid}@{group.args[0]}")
    assert item.nodeid.endswith(f"@{group.args[0]}")
