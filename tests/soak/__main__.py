"""``python -m tests.soak [--minutes N] [--seed S] [--faults N] [--keep FOLDER]``: see ``tests.soak``."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.soak._episode import run_episode

FIGURES = Path("benchmarks/results/soak.json")


def main() -> None:
    """Run episodes until the time is over, or all kinds of faults were injected often enough."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="of the first episode; by default a random one")
    parser.add_argument("--faults", type=int, default=12, help="faults of an episode (12)")
    parser.add_argument("--figures", type=Path, default=FIGURES, help=f"the file of figures ({FIGURES})")
    chosen = parser.parse_args()
    seed, end = chosen.seed or random.randrange(1, 1 << 30), time.monotonic() + chosen.minutes * 60
    while time.monotonic() < end:
        print(f"episode of seed {seed}", flush=True)
        with tempfile.TemporaryDirectory(prefix="headgate-soak-") as folder:
            figures = run_episode(Path(folder), seed, chosen.faults)
        print(json.dumps(figures), flush=True)
        _add(chosen.figures, figures)
        seed += 1


def _add(file: Path, figures: dict[str, Any]) -> None:
    """Add an episode's figures to those of this commit."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    all_figures: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    kept = all_figures.setdefault(commit, {"episodes": 0})
    kept["episodes"] += 1
    for name, value in figures.items():
        if isinstance(value, dict):
            kept[name] = dict(Counter(kept.get(name, {})) + Counter(value))
        elif name.startswith("most"):
            kept[name] = max(kept.get(name, 0), value)
        else:
            kept[name] = kept.get(name, 0) + value
    file.write_text(json.dumps(all_figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
