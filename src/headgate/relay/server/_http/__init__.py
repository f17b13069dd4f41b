"""The relay over HTTP.

=========================================  =======================================================================
``_parameters``                            what parameters of commands are made of
``_commands``                              what a command is, and its errors
``_requests``                              what consumers request from ``/stream``
``_waiting``                               requests that wait, without a thread
``_decoded``                               events with their rows decoded
``_about _statistics _stream _log``        the commands; ``_bootstrap``, ``_groups``: those of the neighbouring rooms
``_choices``                               filters checked and compiled, cached
``_pages``                                 refusal of other servers' pages; the header Host
``_gate``                                  authentication and rate limits
``_app``                                   all of them in one application
=========================================  =======================================================================
"""
