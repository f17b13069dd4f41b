"""What the log says of the signals that a batch took."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.sinks import log_signals
from tests.fix_carrier import FakeBatch

REFUSAL = {"shop.b": ["UNKNOWN_SCHEMA", "the table is gone"]}


@pytest.mark.parametrize(
    ("action", "line"),
    [
        ({"tables": [], "error": "no table of this pipeline matches shop.x"}, "refused: no table of this pipeline"),
        ({"tables": ["shop.b"], "error": "shop.b: it is gone", "refused": REFUSAL}, "refused: shop.b: it is gone"),
        ({"tables": ["shop.a"], "error": "shop.b: it is gone", "refused": REFUSAL}, "refused in part: shop.b: "),
    ],
)
def test_a_refused_signal_is_called_so(action: dict[str, Any], line: str, caplog: pytest.LogCaptureFixture) -> None:
    batch = FakeBatch(9)
    batch.actions.append({"id": "s1", "type": "execute-snapshot", **action})
    with caplog.at_level("INFO", "headgate"):
        log_signals(batch.described())
    (message,) = caplog.messages
    assert message.startswith(f"signal s1 (execute-snapshot) {line}")


@pytest.mark.parametrize(
    ("kind", "tables", "effect"),
    [
        ("execute-snapshot", ["shop.a", "shop.b"], "shop.a, shop.b"),
        ("stop-snapshot", [], "nothing to do"),
        ("pause-snapshot", [], "reading tables is paused"),
        ("resume-snapshot", [], "reading tables is not paused"),
    ],
)
def test_the_effect_of_a_signal(kind: str, tables: list[str], effect: str, caplog: pytest.LogCaptureFixture) -> None:
    batch = FakeBatch(9)
    batch.actions.append({"id": "s1", "type": kind, "tables": tables})
    with caplog.at_level("INFO", "headgate"):
        log_signals(batch.described())
    assert caplog.messages == [f"signal s1: {kind}: {effect}"]
