"""Transaction markers: what a Delta table's log says about the batches that wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.errors import SecondDriverError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Marker", "batch_marker", "check_order", "newest_batch"]


@dataclass(frozen=True)
class Marker:
    """Delta transaction marker: a second append under the same marker adds nothing."""

    application: str
    version: int

    def action(self) -> dict[str, Any]:
        """Return the commit's ``txn`` action."""
        return {"txn": {"appId": self.application, "version": self.version}}


def batch_marker(pipeline: str, epoch: int) -> Marker:
    """Return the marker of all commits of a batch. It prevents none of them, but those of earlier batches
    (:func:`check_order`).
    """
    return Marker(f"{_applications(pipeline)}batch", epoch)


def check_order(path: str, transactions: Mapping[str, int], marker: Marker) -> None:
    """Check that no later batch has written a table: the fence against a driver that continues after another one has
    taken its place. That one's ledger row would be refused, but its commits before that would bring deleted rows back.

    :param transactions: of the version on which a commit of the marker's batch is planned, by application.
    :raises SecondDriverError: a later batch has written it.
    """
    newest = transactions.get(marker.application, marker.version)
    if newest > marker.version:
        raise SecondDriverError(
            f"another program wrote {path} in batch {newest}, after batch {marker.version}: two pipelines run on one"
            " target; stop one of them"
        )


def newest_batch(pipeline: str, transactions: Mapping[str, int]) -> int:
    """Return the epoch of the newest batch of a pipeline that wrote a table; 0: none.

    :param transactions: of the table, by application.
    """
    ours = _applications(pipeline)
    return max((epoch for name, epoch in transactions.items() if name.startswith(ours)), default=0)


def _applications(pipeline: str) -> str:
    return f"headgate/{pipeline}/"
