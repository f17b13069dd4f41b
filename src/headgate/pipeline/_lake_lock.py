"""The lock of a lake in a local folder: one run writes it at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from headgate.errors import SecondDriverError, TargetError
from headgate.files import LockedError, try_lock
from headgate.lake import Lake

__all__ = ["lake_lock"]


@contextlib.contextmanager
def lake_lock(lake: Lake) -> Iterator[None]:
    """Lock a local lake for one run, with an advisory lock that ends with the process. Elsewhere the ledger decides.

    :raises SecondDriverError: another run holds it.
    :raises TargetError: the lock's file cannot be written.
    """
    if not lake.is_local:
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(try_lock(Path(lake.lock), shared=True))
        except LockedError as error:
            raise SecondDriverError(
                f"{lake.path} is being written by {error}; stop it or choose another target.path"
            ) from None
        except OSError as error:
            raise TargetError(f"{error.filename or lake.lock} cannot be written: {error.strerror}") from None
        yield
