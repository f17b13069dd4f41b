"""Upkeep of a lake's tables: small files are folded, and what no reader needs is removed.

======================  ===========================================================================
``_upkeep``             in parallel with the batches of a run; ``_maintain``: ``headgate maintain``
``_background``         the thread, which takes a part of the time
``_table_upkeep``       the table in one folder
``_retained_versions``  versions that have to stay readable
``_file_removal``       files that no such version needs
``_folds``              folds of small files
======================  ===========================================================================
"""

from __future__ import annotations

from headgate.upkeep._file_removal import Amount, UpkeepTimes
from headgate.upkeep._folds import Folds
from headgate.upkeep._maintain import Maintained, Maintenance
from headgate.upkeep._table_upkeep import TableFiles, fold_layout
from headgate.upkeep._upkeep import Upkeep

__all__ = ["Amount", "Folds", "Maintained", "Maintenance", "TableFiles", "Upkeep", "UpkeepTimes", "fold_layout"]
