"""Names of databases, tables and columns: how they are compared, quoted for SQL and Arrow, and written into paths."""

from headgate.names._names import in_utf8mb3, lower_name, printable, quote_name, split_table, with_positional_names
from headgate.names._paths import LONGEST_SEGMENT, path_segment

__all__ = [
    "LONGEST_SEGMENT",
    "in_utf8mb3",
    "lower_name",
    "path_segment",
    "printable",
    "quote_name",
    "split_table",
    "with_positional_names",
]
