"""The command line: one module per command, imported only when that command runs.

Exit codes: 0 success, 1 a difference or a failed check, 2 bad use or configuration, 3 the source or the target failed,
130 interrupted, 141 nobody reads the output any more. A command that Ctrl-C is to end, such as ``run``, ends with 0.
"""

from headgate.cli._app import app, main

__all__ = ["app", "main"]
