"""The binlog archive: a copy of the binlog in files, read instead of the server in this process or over HTTP.

===========  ======================================================
``_spool``   the archive: its guarantees and why it survives kills
``_files``   its files; ``_reader``: reading them
``_feeder``  the thread that copies a server's log to the archive
``_remote``  reading the archive of a relay over HTTP
``_wire``    the description of an archive's content
===========  ======================================================
"""

from headgate.relay.archive._feeder import LogFeeder
from headgate.relay.archive._files import SegmentSizes
from headgate.relay.archive._reader import LogReader
from headgate.relay.archive._remote import LogOfRelay, relay_prerequisite
from headgate.relay.archive._spool import LogSpool
from headgate.relay.archive._wire import FILES, HEAD, RANGE, SERVER_UUID, LogFile, LogHead, RangeRequest, Series

__all__ = [
    "FILES",
    "HEAD",
    "RANGE",
    "SERVER_UUID",
    "LogFeeder",
    "LogFile",
    "LogHead",
    "LogOfRelay",
    "LogReader",
    "LogSpool",
    "RangeRequest",
    "SegmentSizes",
    "Series",
    "relay_prerequisite",
]
