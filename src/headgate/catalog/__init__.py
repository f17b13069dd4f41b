"""Table definitions: from the log's table maps and from information_schema, normalised to one description."""

from headgate.catalog._charsets import decode_statement, no_break_space_is_white
from headgate.catalog._code_tables import (
    ALIAS,
    MULTI_BYTE,
    NO_CODE,
    SINGLE_BYTE,
    MultiByteTable,
    code_table,
    multi_byte_table,
    single_byte_text,
)
from headgate.catalog._column_changes import (
    AddedColumn,
    ColumnChange,
    DroppedColumn,
    RedefinedColumn,
    added_columns,
    creates_if_absent,
)
from headgate.catalog._ddl import DdlEffect, Statement, declares_cascade, parse_statement
from headgate.catalog._defaults import existing_value
from headgate.catalog._information_schema import (
    NamedTable,
    TableStats,
    databases_with_dots,
    load_stats,
    load_table,
    load_tables,
)
from headgate.catalog._log import ambiguous, fit_table, table_from_table_map
from headgate.catalog._patterns import (
    HELPERS_LEFT_OUT,
    TablePatterns,
    as_globs,
    exact_pattern,
    exact_patterns,
    expressions,
)
from headgate.catalog._redefinitions import is_text_type, keeps_values
from headgate.catalog._table import BINARIES, INTEGERS, TEMPORALS, TEXTS, Column, TableDef
from headgate.catalog._visible import (
    SelectAccess,
    check_visible,
    denied_reason,
    hidden_reason,
    hides_columns,
    table_access,
)

__all__ = [
    "ALIAS",
    "BINARIES",
    "HELPERS_LEFT_OUT",
    "INTEGERS",
    "MULTI_BYTE",
    "NO_CODE",
    "SINGLE_BYTE",
    "TEMPORALS",
    "TEXTS",
    "AddedColumn",
    "Column",
    "ColumnChange",
    "DdlEffect",
    "DroppedColumn",
    "MultiByteTable",
    "NamedTable",
    "RedefinedColumn",
    "SelectAccess",
    "Statement",
    "TableDef",
    "TablePatterns",
    "TableStats",
    "added_columns",
    "ambiguous",
    "as_globs",
    "check_visible",
    "code_table",
    "creates_if_absent",
    "databases_with_dots",
    "declares_cascade",
    "decode_statement",
    "denied_reason",
    "exact_pattern",
    "exact_patterns",
    "existing_value",
    "expressions",
    "fit_table",
    "hidden_reason",
    "hides_columns",
    "is_text_type",
    "keeps_values",
    "load_stats",
    "load_table",
    "load_tables",
    "multi_byte_table",
    "no_break_space_is_white",
    "parse_statement",
    "single_byte_text",
    "table_access",
    "table_from_table_map",
]
