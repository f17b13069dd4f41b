"""Events of Spark Connect's commands, with the profiles that Spark 4.2.0 sends among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkValueError
from pyspark.sql.connect.client.core import PlanObservedMetrics, SparkConnectClient
from pyspark.sql.connect.session import SparkSession as ConnectSession
from pyspark.sql.session import SparkSession

from headgate.spark._connect import accept_profiles, is_connect

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


def test_profiles_are_left_out_of_the_events_wherever_they_come() -> None:
    client = Client(PROFILES, EVENT, PROFILES, EVENT)
    with pytest.raises(PySparkValueError, match="UNKNOWN_RESPONSE"):
        client.events()
    accept_profiles(client)
    accept_profiles(client)
    assert client.events() == [EVENT, EVENT]


def test_other_metrics_are_still_refused() -> None:
    client = Client(EVENT, PlanObservedMetrics("rows", [], []))
    accept_profiles(client)
    with pytest.raises(PySparkValueError, match="UNKNOWN_RESPONSE"):
        client.events()


def test_a_session_of_connect_is_told_from_a_classic_one() -> None:
    session: Any = object.__new__(ConnectSession)
    assert is_connect(session)
    assert not is_connect(object.__new__(SparkSession))
