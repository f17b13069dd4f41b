"""axe-core, the checker of pages for people with disabilities: a script that runs in the checked page."""

from __future__ import annotations

from headgate_testing._npm import npm_file

__all__ = ["AXE_VERSION", "axe_script"]

AXE_VERSION = "4.14.1"


def axe_script() -> str:
    """Return the script; it is fetched once with npm, 3 MB.

    :raises ConfigError: npm is missing, or fails.
    """
    return npm_file("axe-core", AXE_VERSION, "axe.min.js").read_text(encoding="utf-8")
