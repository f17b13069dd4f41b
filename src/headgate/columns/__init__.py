"""Columns: wire values to Arrow, one codec a column, for the log and for result sets."""

from headgate.columns._codec import Codec
from headgate.columns._json_diff import apply_json_differences
from headgate.columns._spelled import SPELLED, ZERO, Spelled, read_spelled, spells
from headgate.columns._table import TableCodec, codec_for

__all__ = [
    "SPELLED",
    "ZERO",
    "Codec",
    "Spelled",
    "TableCodec",
    "apply_json_differences",
    "codec_for",
    "read_spelled",
    "spells",
]
