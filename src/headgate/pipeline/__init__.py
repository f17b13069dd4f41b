"""A pipeline: the stream of one MySQL server into one lake.

=================  ===================================================================================
``_run``           wiring, and how a run begins, tries again and ends
``_checks``        what a run needs, checked before it begins
``_foreign_keys``  tables whose rows foreign keys change unseen, as batches bring them
``_status``        keeps a run's ``status.json`` fresh
``_figures``       rates, freshness, their last ten minutes, and how far the batch under way is
=================  ===================================================================================
"""

from headgate.pipeline._checks import (
    check_config,
    check_patterns,
    check_signal_topic,
    check_source,
    connection_settings,
    followed,
)
from headgate.pipeline._run import Pipeline, read_source, source_options

__all__ = [
    "Pipeline",
    "check_config",
    "check_patterns",
    "check_signal_topic",
    "check_source",
    "connection_settings",
    "followed",
    "read_source",
    "source_options",
]
