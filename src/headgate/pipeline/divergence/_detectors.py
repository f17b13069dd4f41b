"""The detectors of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.pipeline.divergence._denied_tables import DeniedTables
from headgate.pipeline.divergence._foreign_keys import ForeignKeys
from headgate.pipeline.divergence._hidden_columns import HiddenColumns
from headgate.pipeline.divergence._join import Detector, join
from headgate.pipeline.divergence._skips import Skips
from headgate.pipeline.divergence._unfollowed_tables import UnfollowedTables

if TYPE_CHECKING:
    from headgate.config import PipelineConfig
    from headgate.mysql import ConnectionSettings
    from headgate.pipeline.divergence._changed_settings import ChangedSettings
    from headgate.sinks import BatchWriter

__all__ = ["detector_of"]


def detector_of(
    config: PipelineConfig, writer: BatchWriter, settings: ConnectionSettings, changed: ChangedSettings
) -> Detector:
    """Return a detector of everything that makes tables of a pipeline differ from the source.

    :param settings: for queries about the source.
    """
    detectors = (
        ForeignKeys(config, settings),
        changed,
        Skips(config, writer),
        UnfollowedTables(writer),
        HiddenColumns(config, writer, settings),
        DeniedTables(writer, settings),
    )
    return join(*(one.unseen for one in detectors))
