"""Tables that differ from their source without images that say so, detected batch by batch.

======================  ===========================================================================
``_detectors``          those of a run
``_join``               several as one: the most serious cause of each table
``_foreign_keys``       cascades, which the log does not have
``_changed_settings``   other settings than before: ``rows``, hook, deletes, rules of columns
``_skips``              operations that are skipped
``_unfollowed_tables``  patterns that no longer include a table
``_hidden_columns``     columns that the user must not read
``_denied_tables``      tables that the user must not read, or could not when the batch was planned
======================  ===========================================================================
"""

from headgate.pipeline.divergence._changed_settings import ChangedSettings
from headgate.pipeline.divergence._denied_tables import DeniedTables
from headgate.pipeline.divergence._detectors import detector_of
from headgate.pipeline.divergence._foreign_keys import ForeignKeys
from headgate.pipeline.divergence._hidden_columns import HiddenColumns
from headgate.pipeline.divergence._join import Detector, join
from headgate.pipeline.divergence._skips import Skips
from headgate.pipeline.divergence._unfollowed_tables import UnfollowedTables

__all__ = [
    "ChangedSettings",
    "DeniedTables",
    "Detector",
    "ForeignKeys",
    "HiddenColumns",
    "Skips",
    "UnfollowedTables",
    "detector_of",
    "join",
]
