"""The log itself, kept in files for streams that read it through a relay.

===========  ======================================================
``_spool``   the copy: what is guaranteed and why it survives kills
``_files``   its files; ``_reader``: reading them
``_feeder``  the thread that copies a server's log there
===========  ======================================================
"""
