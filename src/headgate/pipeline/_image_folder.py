"""Where the images of a run's batches are, and what earlier runs left there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.carrier import ImageFolder
from headgate.engine import is_local
from headgate.files import LockedError, lock_file, try_lock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.lake import Lake

__all__ = ["image_folder"]

_NAME: Final = "headgate-images-"


@contextmanager
def image_folder(spark: SparkSession, lake: Lake) -> Iterator[ImageFolder]:
    """Yield the folder for images of one run; it is removed afterwards, and first those that killed runs left.

    If all tasks run on this machine, it is in Spark's local folder, else in the lake, which all machines reach.
    """
    if not is_local({"spark.master": spark.sparkContext.master or ""}):
        ImageFolder(lake.images).clear()  # a lake has one run at a time: another one's batch would be retried
        folder = ImageFolder(f"{lake.images}/{uuid.uuid4().hex}")
        try:
            yield folder
        finally:
            ImageFolder(lake.images).clear()
        return
    from pyspark import SparkFiles

    root = Path(SparkFiles.getRootDirectory())
    _remove_stale(root.parents[1])
    path = root / f"{_NAME}{uuid.uuid4().hex}"
    folder = ImageFolder(path)
    with lock_file(path):
        try:
            yield folder
        finally:
            folder.clear()
            _lock_of(path).unlink(missing_ok=True)


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _remove_stale(local: Path) -> None:
    """Remove the folders of runs that have ended, among those of all this user's sessions.

    :param local: the folder ``spark.local.dir``.
    """
    for lock in local.glob(f"spark-*/*/{_NAME}*.lock"):
        with suppress(LockedError, OSError), try_lock(lock):
            ImageFolder(lock.with_suffix("")).clear()
            lock.unlink(missing_ok=True)
