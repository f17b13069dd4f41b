"""Properties by which a table of a lake says what it is: readers need no configuration.

Those of a form are in ``_table_kind``, those of a current table's columns in ``_target``. Values that are no plain text
are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["BEGUN", "MERGED", "PIPELINE", "TABLE", "key_of", "key_property"]

PIPELINE: Final = "headgate.pipeline"
TABLE: Final = "headgate.table"
BEGUN: Final = "headgate.begun"
"""Of the ledger: the epoch of the first batch that began to write with it, in the ledger or lost."""
MERGED: Final = "headgate.merged"
"""``true`` for a table that consists of other tables' files, which are removed with those; else missing."""
_KEY: Final = "headgate.key"
"""The columns of the table's key, as a JSON list; empty without a key."""


def key_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the key's columns of a table with these properties; empty without a key."""
    return tuple(json.loads(properties.get(_KEY) or "[]"))


def key_property(key: Sequence[str]) -> dict[str, str]:
    """Return the property of a table with this key."""
    return {_KEY: json.dumps(list(key), ensure_ascii=False)}
