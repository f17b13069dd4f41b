"""Figures of runs that add up: a JSON file with an entry for each commit."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

__all__ = ["add_figures", "counts_of_all_commits", "entries", "this_commit"]


def add_figures(file: Path, figures: dict[str, Any], commit: str | None = None) -> None:
    """Add figures to those of this commit.

    Numbers are added, those of ``most_…`` are compared, and counts (``dict[str, int]``) are added by name.

    :param commit: another commit.
    """
    all_entries = entries(file)
    entry = all_entries.setdefault(commit or this_commit(), {})
    for name, value in figures.items():
        if isinstance(value, dict):
            entry[name] = dict(sorted((Counter(entry.get(name, {})) + Counter(value)).items()))
        elif name.startswith("most_"):
            entry[name] = max(entry.get(name, 0), value)
        else:
            entry[name] = entry.get(name, 0) + value
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(all_entries, indent=1, sort_keys=True) + "\n")
    temporary.replace(file)


def counts_of_all_commits(file: Path, name: str) -> Counter[str]:
    """Return the sum of these counts over all commits."""
    return sum((Counter(entry.get(name, {})) for entry in entries(file).values()), Counter())


def entries(file: Path) -> dict[str, dict[str, Any]]:
    """Return the figures by commit."""
    return json.loads(file.read_text()) if file.exists() else {}


def this_commit() -> str:
    """Return the commit that is checked out."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
