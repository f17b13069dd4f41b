"""Write what a batch's actions say: rows, columns, changelogs and histories of Delta tables.

====================  =============================================================================
``_current``          a current table or history: a loop over its actions; ``_changelog``: a changelog
``_schema_history``   the history of schemas
``_expand``           stored images as typed rows, in tasks or in this process
``_images``           images aligned, folded and paired; ``_pieces``: divided by key; ``_partial``,
                      ``_complete``: those that leave columns out; ``_keyless``, ``_row_hash``: tables
                      without a key; ``_versions``: versions of rows; ``_proof``: keys
``_upsert``           rows that replace others, found by an index; ``_staged_rows``, ``_counted``,
                      ``_version_changes``: their changes; ``_row_changes``: changes without images
``_rewrite``          other columns for existing rows
====================  =============================================================================
"""

from __future__ import annotations

from headgate.apply._changelog import ChangelogTable
from headgate.apply._current import CurrentTable
from headgate.apply._schema_history import SchemaHistory
from headgate.apply._upsert import Upserts

__all__ = ["ChangelogTable", "CurrentTable", "SchemaHistory", "Upserts"]
