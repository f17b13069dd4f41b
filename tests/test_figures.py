from __future__ import annotations

import json
from pathlib import Path

from tests.figures import add_figures, counts_of_all_commits


def test_figures_of_runs_add_up(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    add_figures(file, {"runs": 1, "faults": {"kill": 2, "network": 0}, "most_bytes": 5}, "a")
    add_figures(file, {"runs": 1, "faults": {"kill": 1, "file": 4}, "most_bytes": 3}, "a")
    add_figures(file, {"runs": 1, "faults": {"kill": 7}}, "b")
    assert json.loads(file.read_text()) == {
        "a": {"runs": 2, "faults": {"file": 4, "kill": 3}, "most_bytes": 5},
        "b": {"runs": 1, "faults": {"kill": 7}},
    }
    assert counts_of_all_commits(file, "faults") == {"kill": 10, "file": 4}
    assert not counts_of_all_commits(tmp_path / "none.json", "faults")
