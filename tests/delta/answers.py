"""Requests to create a commit's file whose answers are lost, late or wrong."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

__all__ = ["Answer", "Faulty"]


class Answer(enum.Enum):
    """What becomes of a request, and what the client is answered."""

    EXISTS_AFTER = enum.auto()
    """It is carried out. The answer is that the file exists, because the client has sent it twice."""
    LOST_AFTER = enum.auto()
    """It is carried out, and the answer is lost."""
    LOST_BEFORE = enum.auto()
    """It is lost."""
    LATE = enum.auto()
    """It times out, and is carried out before the next one."""
    TOO_LATE = enum.auto()
    """It times out, and is carried out after the next one."""


class Faulty:
    """Carries out requests, with faults while there are answers; then as it should.

    :param create: creates a file if it does not exist.
    """

    def __init__(self, create: Callable[..., None], answers: Sequence[Answer]) -> None:
        self._create, self.answers = create, list(answers)
        self._early: list[Callable[[], None]] = []
        self._late: list[Callable[[], None]] = []

    def __call__(self, *request: Any) -> None:
        self._arrive(self._early)
        late, self._late = self._late, []
        try:
            self._answer(self.answers.pop(0) if self.answers else None, partial(self._create, *request))
        finally:
            self._arrive(late)

    def arrive(self) -> None:
        """Carry out what is under way."""
        self._arrive(self._early)
        self._arrive(self._late)

    def _answer(self, answer: Answer | None, create: Callable[[], None]) -> None:
        match answer:
            case None:
                return create()
            case Answer.EXISTS_AFTER:
                create()
                raise FileExistsError("it exists")
            case Answer.LOST_AFTER:
                create()
            case Answer.LATE:
                self._early.append(create)
            case Answer.TOO_LATE:
                self._late.append(create)
        raise TimeoutError("no answer")

    @staticmethod
    def _arrive(requests: list[Callable[[], None]]) -> None:
        while requests:
            with suppress(FileExistsError, FileNotFoundError):
                requests.pop(0)()
