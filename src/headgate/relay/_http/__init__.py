"""The relay over HTTP.

=========================================  =======================================================================
``_parameters``                            the parameters of commands: read and described by one table
``_commands``                              what a command is, and its errors
``_requests``                              what consumers ask of ``/stream``
``_reading``                               events read, waited for (``_news``), counted and decoded (``_decoded``)
``_about _statistics _stream _live _log``  the commands; ``_bootstrap``, ``_groups``: those of the rooms beside
``_compiled``                              choices of events that are compiled once
``_gate``                                  who asks: tokens and limits
``_openapi``                               what the commands take and answer, for programs
``_app``                                   all of them in one application
=========================================  =======================================================================
"""
