"""The page of figures: what was done to pipelines, by commit, and what the judge compared."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.figures import entries
from tests.soak._faults import FAULTS

__all__ = ["PAGE", "page", "write_page"]

PAGE: Final = Path("docs/explanation/soak.md")
_JUDGED: Final = ("ledger rows", "as-of reads", "moments", "changes")
_FIGURES: Final = "## Figures\n"
"""Heads the part of the page that is generated."""


def write_page(figures: Path, file: Path = PAGE) -> None:
    """Write the page of a file of figures."""
    file.write_text(page(file.read_text(), entries(figures)))


def page(text: str, figures: dict[str, dict[str, Any]]) -> str:
    """Return the page's text with other figures.

    :param figures: by commit, as ``tests/figures.py`` keeps them.
    """
    names = ["minutes", *FAULTS, "batches", *_JUDGED, "failures"]
    head, _, _ = text.partition(_FIGURES)
    rows = [f"| commit | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    total = Counter[str]()
    for commit, entry in sorted(figures.items()):
        counts = _counts(entry)
        total.update(counts)
        rows.append(_row(f"`{commit}`", counts, names))
    rows.append(_row("all", total, names))
    sites = sum((Counter(entry.get("kills", {})) for entry in figures.values()), Counter[str]())
    kills = ", ".join(f"{site} {count:,}" for site, count in sorted(sites.items()))
    return "\n".join((f"{head}{_FIGURES}", *rows, "", f"Kills by site: {kills}.", ""))


def _counts(entry: dict[str, Any]) -> Counter[str]:
    counts = Counter(entry.get("faults", {})) + Counter(entry.get("judged", {}))
    counts.update(
        minutes=round(entry.get("seconds", 0) / 60), batches=entry.get("batches", 0), failures=entry.get("failures", 0)
    )
    return counts


def _row(head: str, counts: Counter[str], names: list[str]) -> str:
    return f"| {head} | {' | '.join(f'{counts[name]:,}' for name in names)} |"
