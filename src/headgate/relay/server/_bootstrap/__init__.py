"""Rows for consumers that are new or too far behind.

==============  =====================================================================
``_bootstrap``  a consumer's start, rows and target; why that is exact
``_sessions``   the parts read for each bootstrap, stored across restarts
``_suppliers``  sources of rows: MySQL by exact chunks, or another supplier
==============  =====================================================================
"""
