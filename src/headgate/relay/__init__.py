"""The relay: the change stream for any number of consumers, in Databus's protocol. A wing of four rooms:

===========  ======================================================================================
``server``   one binlog reader per source, its buffer, and the HTTP server
``client``   consumers in Python: callbacks, checkpoints, bootstraps, groups
``archive``  the binlog in files, read instead of the server
``databus``  what server and consumers exchange, byte by byte
===========  ======================================================================================

Each has public names of its own, as in ``from headgate.relay.client import RelayClient``.
"""

__all__: list[str] = []
