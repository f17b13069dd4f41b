"""Column codecs: wire values to Arrow, one codec per column, for the log and for result sets."""

from headgate.columns._chosen_keys import check_chosen_keys, with_chosen_key
from headgate.columns._expressions import (
    And,
    Compare,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Not,
    Or,
    columns_of,
    days_of,
    microseconds_of,
    parse_expression,
    pattern_parts,
)
from headgate.columns._hex_keys import HEX_MARK, ZERO, HexKey, needs_hex, read_hex_key
from headgate.columns._hooks import HookedTable, hooked_table, mysql_type
from headgate.columns._json_diff import apply_json_differences
from headgate.columns._rows import RowFilter, check_row_filters, filter_images
from headgate.columns._rules import (
    check_rules,
    column_rules,
    excluded_by_name,
    hash_mark,
    rules_mark,
    target_table,
    with_type_of_values,
    written_name,
)
from headgate.columns._table import PASSES_FIELD, TableCodec, codec_for

__all__ = [
    "HEX_MARK",
    "PASSES_FIELD",
    "ZERO",
    "And",
    "Compare",
    "Expression",
    "HexKey",
    "HookedTable",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "Name",
    "Not",
    "Or",
    "RowFilter",
    "TableCodec",
    "apply_json_differences",
    "check_chosen_keys",
    "check_row_filters",
    "check_rules",
    "codec_for",
    "column_rules",
    "columns_of",
    "days_of",
    "excluded_by_name",
    "filter_images",
    "hash_mark",
    "hooked_table",
    "microseconds_of",
    "mysql_type",
    "needs_hex",
    "parse_expression",
    "pattern_parts",
    "read_hex_key",
    "rules_mark",
    "target_table",
    "with_chosen_key",
    "with_type_of_values",
    "written_name",
]
