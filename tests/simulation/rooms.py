"""What stands inside rooms takes its private names from here: one module changes with them."""

from __future__ import annotations

from headgate.apply._complete import Completed
from headgate.apply._current import _FIRST, _epochs
from headgate.apply._expand import completed_changes, version_changes, whole_table
from headgate.apply._images import align, drop_before
from headgate.apply._keyless import Contents
from headgate.apply._pieces import all_images
from headgate.apply._row_changes import Ending
from headgate.delta._actions import parse_action
from headgate.kafka._log_order import log_order
from headgate.kafka._producer import ANY_PARTITION
from headgate.kafka._target import SentBatch
from headgate.kafka._topic_names import batches_topic
from headgate.relay.archive._files import LogSegment
from headgate.relay.client._checkpoints import CheckpointFile, Keeper
from headgate.relay.server._position import BufferPosition, FeederState, StateFile, load_state
from headgate.relay.server._segments import newest_stored_scn, stored_segments
from headgate.spark._carried import definition_of
from headgate.spark._server import DirectLog
from headgate.spark._server_history import HistoryCheck

__all__ = [
    "ANY_PARTITION",
    "_FIRST",
    "BufferPosition",
    "CheckpointFile",
    "Completed",
    "Contents",
    "DirectLog",
    "Ending",
    "FeederState",
    "HistoryCheck",
    "Keeper",
    "LogSegment",
    "SentBatch",
    "StateFile",
    "_epochs",
    "align",
    "all_images",
    "batches_topic",
    "completed_changes",
    "definition_of",
    "drop_before",
    "load_state",
    "log_order",
    "newest_stored_scn",
    "parse_action",
    "stored_segments",
    "version_changes",
    "whole_table",
]
