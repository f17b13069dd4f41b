"""Where the images of a run's batches are, and what earlier runs left there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import iglob
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.carrier import ImageFolder
from headgate.engine import is_local
from headgate.errors import HeadgateError
from headgate.files import LockedError, lock_file, try_lock
from headgate.stores import folder_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.lake import Lake

__all__ = ["image_folder", "remove_other_images"]

_NAME: Final = "headgate-images-"


@contextmanager
def image_folder(spark: SparkSession, lake: Lake) -> Iterator[ImageFolder]:
    """Yield the folder for images of one run; it is removed afterwards.

    If all tasks run on this machine, it is in Spark's local folder, and those of killed runs are removed first. Else it
    is in the lake, which all machines reach; see :func:`remove_other_images`.
    """
    if not is_local({"spark.master": spark.sparkContext.master or ""}):
        folder = ImageFolder(f"{lake.images}/{uuid.uuid4().hex}")
        try:
            yield folder
        finally:
            folder.clear()
            if lake.is_local:
                with suppress(OSError):  # another run's images
                    Path(lake.images).rmdir()
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


def remove_other_images(lake: Lake, images: ImageFolder | None) -> None:
    """Remove other runs' images from the lake. Errors are ignored.

    Call this once a run has committed a batch: then no other run can commit the batch that its images are of.

    :param images: the run's own.
    """
    if images is None or not images.path.startswith(f"{lake.images}/"):
        return
    with suppress(HeadgateError, OSError):
        for name in folder_of(lake.images).folders():
            folder = ImageFolder(f"{lake.images}/{name}")
            if folder.path != images.path:
                folder.clear()


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _remove_stale(local: Path) -> None:
    """Remove the folders of runs that have ended, among those of all this user's sessions.

    :param local: the folder ``spark.local.dir``.
    """
    # ``Path.glob`` fails if another run removes its folder meanwhile.
    for name in iglob(f"spark-*/*/{_NAME}*.lock", root_dir=local):  # noqa: PTH207
        lock = local / name
        with suppress(LockedError, OSError), try_lock(lock):
            ImageFolder(lock.with_suffix("")).clear()
            lock.unlink(missing_ok=True)
