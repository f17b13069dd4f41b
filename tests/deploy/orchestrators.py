"""The files of ``deploy/`` for Airflow and Dagster as modules, without these tools: they import stand-ins of them.

``python -m tests.deploy.orchestrators COMMAND [SECONDS]`` executes the operator for a command of headgate as Airflow 3
executes a task: on the main thread, with a handler of SIGTERM that calls ``on_kill``, and with a time limit from
headgate's first line on.
"""

from __future__ import annotations

import importlib.util
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any
from unittest.mock import MagicMock, patch

FOLDER = Path(__file__).parents[2] / "deploy"


class AirflowException(Exception):
    """Airflow tries the task again."""


class AirflowFailException(AirflowException):
    """Airflow does not try the task again."""


class BaseOperator:
    """What an operator has from Airflow."""

    log = logging.getLogger("airflow")
    outlets: Sequence[Any] = ()

    def __init__(self, **_settings: Any) -> None:
        pass

    def __rshift__(self, other: BaseOperator) -> BaseOperator:
        return other


class Failure(Exception):
    """Dagster's error of a step."""

    def __init__(self, description: str, allow_retries: bool) -> None:
        super().__init__(description)
        self.allow_retries = allow_retries


def _table(records: Sequence[Any], schema: Any = None) -> Sequence[Any]:
    """Return the records; as Dagster, refuse none without a schema."""
    if not records and schema is None:
        raise ValueError("schema must be provided if records is empty")
    return records


def _undecorated(**_settings: Any) -> Callable[[Any], Any]:
    return lambda function: function


def _airflow() -> dict[str, Any]:
    sdk = MagicMock(BaseOperator=BaseOperator)
    sdk.Connection.get.return_value.password = "secret"
    errors = MagicMock(AirflowException=AirflowException, AirflowFailException=AirflowFailException)
    return {"airflow": MagicMock(), "airflow.sdk": sdk, "airflow.sdk.exceptions": errors}


def _dagster() -> dict[str, Any]:
    dagster = MagicMock(asset=_undecorated, asset_check=_undecorated, Failure=Failure)
    dagster.MetadataValue.table = _table
    dagster.TableRecord = dict
    return {"dagster": dagster}


def load(tool: str) -> ModuleType:
    """Return the file for ``tool`` as a module."""
    spec = importlib.util.spec_from_file_location("headgate_shop", FOLDER / tool / "headgate_shop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, {"airflow": _airflow, "dagster": _dagster}[tool]()):
        spec.loader.exec_module(module)
    return module


def main(command: str, seconds: str = "0") -> None:
    """Execute the operator for ``command``."""
    operator = load("airflow").HeadgateOperator(command=command)

    def end(_number: int, _frame: FrameType | None) -> None:
        operator.on_kill()

    def limit(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGALRM, limit)
    operator.log = MagicMock()
    operator.log.info = lambda *_: signal.setitimer(signal.ITIMER_REAL, float(seconds))
    try:
        operator.execute({})
    except TimeoutError:
        operator.on_kill()
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
