"""Spark Connect sessions: what :func:`headgate.register` works around in Spark 4.2.0.

Declarative pipelines run in such a session: the client sends one command and prints the events that come back until the
run has ended. In Spark 4.2.0 the workers that plan a data source in Python send two empty profiles, and the server
adds them to the answer as metrics. The client accepts only events there, so ``spark-pipelines run`` would end with
UNKNOWN_RESPONSE after each run, although it had succeeded (SPARK-59135). So these metrics, and nothing else, are left
out of what the client sees as events. It has read the profiles themselves by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["accept_profiles", "is_connect"]

_CONNECT: Final = "pyspark.sql.connect."
_PROFILES: Final = "__python_accumulator__"
"""The name of these metrics, in Spark's client."""


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect. The class is compared by name, because it needs grpcio."""
    return type(spark).__module__.startswith(_CONNECT)


def accept_profiles(client: Any) -> None:
    """Leave workers' profiles out of the events that commands of this client return.

    :param client: the SparkConnectClient of a session. A second call has no effect.
    """
    client.execute_command_as_iterator = _ClientWithoutProfiles(client).execute_command_as_iterator


class _ClientWithoutProfiles:
    """A client's method that returns events, on answers without profiles; everything else is the client's."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def execute_command_as_iterator(self, *args: Any, **kwargs: Any) -> Iterator[dict[str, Any]]:
        yield from type(self._client).execute_command_as_iterator(self, *args, **kwargs)

    def _execute_and_fetch_as_iterator(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        for response in self._client._execute_and_fetch_as_iterator(*args, **kwargs):
            if getattr(response, "name", None) != _PROFILES:
                yield response
