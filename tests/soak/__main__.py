"""``python -m tests.soak [--minutes N] [--seed S] [--faults N] [--keep FOLDER]``: see ``tests.soak``."""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from tests.figures import add_figures
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
        add_figures(chosen.figures, {"episodes": 1, **figures})
        seed += 1


if __name__ == "__main__":
    main()
