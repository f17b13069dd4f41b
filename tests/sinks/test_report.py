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


def test_a_signal_that_has_an_effect(caplog: pytest.LogCaptureFixture) -> None:
    batch = FakeBatch(9)
    batch.actions.append({"id": "s1", "type": "execute-snapshot", "tables": ["shop.a", "shop.b"]})
    with caplog.at_level("INFO", "headgate"):
        log_signals(batch.described())
    assert caplog.messages == ["signal s1: execute-snapshot: shop.a, shop.b"]
