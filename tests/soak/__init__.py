"""Soak: a pipeline that is broken in every way, again and again, while accounts are written at its source.

A *world* is a pair of MySQL servers (``_source``), a proxy in front of them, a lake, and ``headgate run`` as a process
that a supervisor starts again (``_pipeline``). Several *episodes* share one. Faults are chosen by the episode's seed
and by what lacks (``_episode``, ``_faults``). Then all is at rest: the writers pause, the ledger has their last
transaction. ``_oracle`` judges by what other programs see: delta-rs reads the lake, PyMySQL and ``mysqlbinlog`` the
source (``_history``); no code of headgate's. ``_growth`` compares what the pipeline takes at the beginning and at the
end.

``scripts/soak`` runs episodes until the time is over. Its figures are added to a file's, by commit, and to a page
(``_page``).
"""
