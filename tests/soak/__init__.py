"""Soak: a pipeline that is broken in every way, again and again, while accounts are written at its source.

A *world* is a pair of MySQL servers, a proxy in front of them, a lake, and ``headgate run`` as a process that a
supervisor starts again. Several *episodes* share one. Faults are chosen by the episode's seed (``_faults``). Then all
is at rest: the writers pause, the ledger has their last transaction. ``_oracle`` judges by what other programs see:
delta-rs reads the lake, PyMySQL the server; no code of headgate's.

Money moves between tables in transactions that keep simple sums, so that each version of the lake that the ledger names
can be judged without a record of what the source was at that time.

``scripts/soak`` runs episodes until the time is over. Its figures are added to a file's, by commit.
"""
