"""The configuration of one table, as the sinks need it."""

from __future__ import annotations

from dataclasses import replace

from headgate.columns import named_columns
from headgate.config import PipelineConfig
from headgate.decide import Policy
from headgate.lake import Places, TableLayout
from headgate.names import split_table

__all__ = ["table_policy"]


def table_policy(config: PipelineConfig, table: str) -> Policy:
    """Return what the configuration says about the targets of ``db.table``."""
    table_config = config.tables.get(table)
    return replace(
        Policy.of(config.target.mode, marks_deletes=config.marks_deletes(table)),
        strict=table_config is not None and table_config.schema_changes == "strict",
        keeps_removed=config.keeps_removed(table),
        schema_changes=config.schema_changes,
        place=Places(config.routes).of(table),
        inconsistent_images=table_config.inconsistent_images if table_config is not None else None,
        layout=TableLayout(config.table_properties(table), config.clustering(table)),
        named_columns=named_columns(config.policies(), *split_table(table)),
    )
