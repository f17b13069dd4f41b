"""Events of Spark Connect's commands, with the profiles that Spark 4.2.0 sends among them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkValueError
from pyspark.sql.connect.client.core import PlanObservedMetrics, SparkConnectClient
from pyspark.sql.connect.session import SparkSession as ConnectSession
from pyspark.sql.session import SparkSession

from headgate.spark import register

EVENT = {"pipeline_event_result": "Run is COMPLETED."}
PROFILES = PlanObservedMetrics("__python_accumulator__", [], [])


class Client(SparkConnectClient):
    """Spark's own client, except that its answers are given."""

    def __init__(self, *answers: object) -> None:
        self._answers = answers
        self._user_id = None

    def _execute_plan_request_with_metadata(self, *_: Any, **__: Any) -> Any:
        return self

    @property
    def plan(self) -> Any:
        return None

    def _set_command_in_plan(self, *_: Any) -> None:
        pass

    def _execute_and_fetch_as_iterator(self, *_: Any, **__: Any) -> Iterator[Any]:
        yield from self._answers

    def events(self) -> list[dict[str, Any]]:
        command: Any = None
        return list(self.execute_command_as_iterator(command))


def register_in(session_type: type, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the data source in a session of this type that has this client."""
    monkeypatch.setattr(session_type, "dataSource", SimpleNamespace(register=lambda _source: None))
    session: Any = object.__new__(session_type)
    session._client = client
    register(session)


def test_profiles_are_left_out_of_the_events_wherever_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(PROFILES, EVENT, PROFILES, EVENT)
    with pytest.raises(PySparkValueError, match="UNKNOWN_RESPONSE"):
        client.events()
    register_in(ConnectSession, client, monkeypatch)
    register_in(ConnectSession, client, monkeypatch)
    assert client.events() == [EVENT, EVENT]


def test_other_metrics_are_still_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(EVENT, PlanObservedMetrics("rows", [], []))
    register_in(ConnectSession, client, monkeypatch)
    with pytest.raises(PySparkValueError, match="UNKNOWN_RESPONSE"):
        client.events()


def test_a_classic_session_has_no_such_client(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(PROFILES, EVENT)
    register_in(SparkSession, client, monkeypatch)
    with pytest.raises(PySparkValueError, match="UNKNOWN_RESPONSE"):
        client.events()
