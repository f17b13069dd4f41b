"""Rows for consumers that are new or too far behind.

==============  =====================================================================
``_bootstrap``  a consumer's start, rows and target; why that is exact
``_sessions``   the parts read for each bootstrap, stored across restarts
``_suppliers``  sources of rows: MySQL by exact chunks, or another supplier
==============  =====================================================================
"""

from headgate.relay.server.bootstrap._bootstrap import Bootstrap, Piece
from headgate.relay.server.bootstrap._suppliers import ChunkSupplier, PartGoneError, PlanGoneError, Rows, Supplier

__all__ = ["Bootstrap", "ChunkSupplier", "PartGoneError", "Piece", "PlanGoneError", "Rows", "Supplier"]
