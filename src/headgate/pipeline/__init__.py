"""A pipeline: the stream of one MySQL server into one lake.

==================  ===================================================================================
``_run``            wiring, and how a run begins, retries and ends
``_checks``         checks of what a run needs, before it begins
``_files``          the lake's lock, and headgate's errors for what the system refuses
``_table_policy``   the configuration of one table, as the sinks need it
``_catalog_names``  names of the lake's tables in a Spark catalog
``divergence``      tables that differ from their source without images that say so
``_status``         keeps a run's ``status.json`` fresh
``_requests``       counts a run's requests to an object store
``_projection``     files and requests from freshness and the number of tables
``_figures``        rates, freshness, their last ten minutes, and the progress of the current batch
==================  ===================================================================================
"""

from headgate.pipeline._catalog_names import names_of
from headgate.pipeline._checks import (
    check_config,
    check_interfaces,
    check_log,
    check_patterns,
    check_resnapshot,
    check_source,
    check_texts,
    connection_settings,
    find_hooks,
    followed_tables,
)
from headgate.pipeline._projection import Projection
from headgate.pipeline._run import Pipeline, read_source, source_options
from headgate.pipeline._status import StatusWriter, record_failure

__all__ = [
    "Pipeline",
    "Projection",
    "StatusWriter",
    "check_config",
    "check_interfaces",
    "check_log",
    "check_patterns",
    "check_resnapshot",
    "check_source",
    "check_texts",
    "connection_settings",
    "find_hooks",
    "followed_tables",
    "names_of",
    "read_source",
    "record_failure",
    "source_options",
]
