"""Commands of ``headgate``, run in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from headgate.cli import app

__all__ = ["fails", "run"]


def run(*args: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    result = CliRunner().invoke(app, list(args))
    return result.exit_code, result.stdout, result.stderr


def fails(code: int, *args: str) -> str:
    """The one line on stderr of a command that ends with this exit code, and prints nothing."""
    exit_code, out, err = run(*args)
    assert exit_code == code, err
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err
