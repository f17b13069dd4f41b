"""When small files are folded, without any file."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from headgate.delta import DataFile, FoldLayout, Snapshot
from headgate.upkeep import Folds

LAYOUT = FoldLayout(pa.schema([]), "snappy", ("id",))


class Unfit:
    """Says of each fold that its files do not fit into one."""

    def __init__(self) -> None:
        self.tries = 0

    def submit(self, work: Any) -> Future[Any]:
        del work
        self.tries += 1
        done: Future[None] = Future()
        done.set_result(None)
        return done


def files(*names: str) -> list[DataFile]:
    return [cast("DataFile", SimpleNamespace(path=name)) for name in names]


def test_files_that_do_not_fit_into_one_are_tried_once() -> None:
    """To find that out, all of them are read."""
    background = Unfit()
    folds = Folds(cast("Any", background))
    for names in ("ab", "ab", "ba", "abc", "abc"):
        folds.begin_with("/lake/t", files(*names), LAYOUT)
        assert not folds.finish("/lake/t", cast("Snapshot", None), ("id",))
    assert background.tries == 2
