"""The binlog kept in files, for streams that read it in the server's place: in this process, or over HTTP.

===========  ======================================================
``_spool``   the copy: what is guaranteed and why it survives kills
``_files``   its files; ``_reader``: reading them
``_feeder``  the thread that copies a server's log there
``_remote``  reading a copy that a relay keeps
``_wire``    what a copy says of itself
===========  ======================================================
"""

from headgate.archive._feeder import LogFeeder
from headgate.archive._reader import LogReader
from headgate.archive._remote import LogOfRelay, relay_prerequisite
from headgate.archive._spool import LogSpool
from headgate.archive._wire import LogHead, Series

__all__ = ["LogFeeder", "LogHead", "LogOfRelay", "LogReader", "LogSpool", "Series", "relay_prerequisite"]
