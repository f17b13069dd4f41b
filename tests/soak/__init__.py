"""Soak: a pipeline that is broken in every way, again and again, while accounts are written at its source.

One *episode* is a world of its own: a pair of MySQL servers, a proxy in front of them, a lake, and ``headgate run`` as
a process that a supervisor starts again. Faults are chosen by the episode's seed (``_faults``). Then all is at rest,
and ``_oracle`` judges by what other programs see: delta-rs reads the lake, PyMySQL the server; no code of headgate's.

Money moves between tables in transactions that keep simple sums, so that each version of the lake that the ledger names
can be judged without a record of what the source was at that time.

``scripts/soak`` runs episodes until so many faults of each kind were injected or the time is over. Its figures are kept
in a file, and a later run continues them.
"""
