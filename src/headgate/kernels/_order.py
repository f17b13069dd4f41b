"""The order of the rows of a table."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["row_order"]


def row_order(table: pa.Table) -> pa.Array:
    """Return the indexes of a table's rows in ascending order by all its columns, of which there is one or more.

    The columns may have any names: Arrow's own functions take one that begins with a dot for a path.
    """
    names = [str(number) for number in range(table.num_columns)]
    return pc.sort_indices(table.rename_columns(names), [(name, "ascending") for name in names])
