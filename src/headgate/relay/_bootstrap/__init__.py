"""Rows for consumers that are new or too far behind.

==============  =====================================================================
``_bootstrap``  a consumer's start, rows and target; why that is exact
``_sessions``   what of which bootstrap was read, kept over restarts
``_suppliers``  where rows come from: MySQL by exact chunks, or whoever supplies them
==============  =====================================================================
"""
