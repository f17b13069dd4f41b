"""The simulation is in place in each test of this folder."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.simulation.episode import simulated


@pytest.fixture(autouse=True)
def in_simulation() -> Iterator[None]:
    state = random.getstate()
    with simulated():
        yield
    random.setstate(state)
