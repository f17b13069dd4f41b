"""Comparison of a lake's tables with their source, row by row, exactly, while writers continue.

===================  ==============================================================================
``_verify``          one table as of one row of the ledger
``_comparer``        both sides in threads; ``_verify_rows``, ``_version``, ``_renamed_source``: their rows
``_digests``         digests of rows, by ``_siphash``
``_buckets``         which rows may differ; ``_verify_match``: pairs of those
``_differences``     results
===================  ==============================================================================
"""

from __future__ import annotations

from headgate.compare._comparer import Comparer
from headgate.compare._differences import Difference, TableResult
from headgate.compare._verify import verify_table

__all__ = ["Comparer", "Difference", "TableResult", "verify_table"]
