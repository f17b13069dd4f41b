"""Simulation: headgate's own decisions in a world that is a program, where every interleaving can be had again.

**What is headgate's.** The planner whole (requests, records of reads, ends of batches, history check, hints, notes,
offsets and their JSON), ``plan_tasks``, the chunk's window, what is left out of unread ranges, batches, decisions, the
order of a write (``sinks.BatchWriter``), counts of equal rows, partial images, versions of a history, messages to Kafka
with their order and transactions, requests and results in the control folder, commits with the settling of their
outcome, logs of tables, markers, the ledger's chain and fence, and the undoing of lost batches.

**What is simulated.** ``source``: two servers, of which one replicates, with commits that reach the log before they are
visible and executed, statements, binlog files, purges, failovers that lose nothing or something, and RESET.
``tables``: tables with a key and without one, and sessions that log partial images. ``reading``: dumps and SELECTs, by
the contracts of ``headgate.replication`` and ``headgate.snapshot``. ``sinks``, ``contents``: rows of tables as Python
values, changed as ``headgate.decide.actions`` says. ``broker``: Kafka's partitions, producers and transactions.
``store``: put-if-absent, with answers that are lost, late, repeated, or wrong. ``world``: time, and the scheduler. Not
simulated: bytes, sockets, Spark, upkeep, changes of columns, filters.

**The relay** has episodes of its own (``relay``): archive, buffer, and consumers with checkpoints, on real files. A
damaged archive may begin later, and has no gap. Some of these
episodes differ between file systems (seed 48: on tmpfs and on ext4); why is not known.

**Interleavings.** Code of headgate runs in one thread. Wherever it leaves headgate it comes to a boundary
(``World.pause``), and there the scheduler lets transactions, statements, failovers, a kill or a second process happen.
So a second process also runs while the first one writes tables (docs/how-to/run-many-pipelines.md, "Two drivers").

**A step** is one action of the scheduler or of the code under test that the figures name: a transaction committed,
replicated, or delivered to a task; a header read; a chunk read begun, or ended with its window; a batch planned, read,
done, repeated; a table decided; an action applied; a version of a table committed; a message accepted; a ledger row,
and its judgement; an answer lost, late, failed or repeated; a kill, start, signal, statement, failover, purge, reset,
lost checkpoint. Of a relay also: an operation on a file; a transaction archived, appended to the buffer, consumed.

**The oracle** (``oracle``) reads the logs of tables itself. Each row of the ledger must name states that the source
had, and still does at rest. There the lake is the source, changelogs have each change once and in order, so do Kafka's
consumers (``messages``), and histories have versions that follow each other.

**Seeds.** An episode is a seed and the seeds of its steps (``episode``). A failing one is repeated by its seed, and
shrinks by leaving steps out. ``scripts/simulate`` runs episodes behind those of the last run; its figures are added to
a file's, by commit. ``test_simulation`` runs 20,000 steps, and takes mends out to see that this is noticed.
"""
