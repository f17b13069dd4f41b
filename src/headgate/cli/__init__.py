"""The command line: one module per command, imported only when that command runs.

Exit codes: 0 success (also after a first Ctrl-C, except while a command waits for an answer: 1), 1 a difference or a
failed check, 2 bad use or configuration, 3 the source or the target failed, 130 after a second Ctrl-C.
"""

from headgate.cli._app import app, main

__all__ = ["app", "main"]
