"""Files of a run: the lake's lock, Spark's temporary ones, and headgate's errors for what the system refuses."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headgate.config import PipelineConfig
from headgate.errors import HeadgateError, SecondDriverError, TargetError
from headgate.files import LockedError, system_error, try_lock
from headgate.lake import Lake, check_lake
from headgate.retrying import RetryPolicy

__all__ = ["known_error", "lake_lock", "temporary_folder"]

_LOCKED: Final = RetryPolicy(0.1, deadline_seconds=2.0, errors=LockedError)
"""``headgate maintain`` holds the lake's lock for single commits."""


@contextlib.contextmanager
def lake_lock(lake: Lake, pipeline: str) -> Iterator[None]:
    """Lock a local lake for one run of its pipeline, with an advisory lock that ends with the process. Elsewhere the
    ledger decides.

    :raises SecondDriverError: another run has it. ``headgate maintain`` has it for moments, which are waited for.
    :raises TargetError: its file cannot be written, or the lake is another pipeline's; StorageError likewise.
    """
    check_lake(lake, pipeline, {})
    if not lake.is_local:
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            _LOCKED.call(lambda: stack.enter_context(try_lock(Path(lake.lock), shared=True)))
        except LockedError as error:
            raise SecondDriverError(
                f"{lake.path} is being written by {error}; stop it or choose another target.path"
            ) from None
        except OSError as error:
            problem = f"{error.filename or lake.lock} cannot be written"
            raise (system_error(error, problem) or TargetError(f"{problem}: {error.strerror}")) from None
        yield


def known_error(error: HeadgateError | OSError) -> HeadgateError:
    """Return headgate's error for one of a disk or of permissions.

    :raises OSError: it is another one.
    """
    known = error if isinstance(error, HeadgateError) else system_error(error)
    if known is None:
        raise error
    return known


def temporary_folder(config: PipelineConfig) -> str:
    """Return where Spark has its temporary files (Spark documentation, "Configuration", ``spark.local.dir``)."""
    return os.environ.get("SPARK_LOCAL_DIRS") or config.spark.get("spark.local.dir") or tempfile.gettempdir()
