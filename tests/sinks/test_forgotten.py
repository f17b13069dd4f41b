"""Which tables a batch removes from the ledger."""

from __future__ import annotations

from headgate.lake import Place, TableState
from headgate.sinks import forget_tables


def test_only_tables_whose_life_is_over_are_forgotten() -> None:
    states = {
        name: TableState(name, state) for name, state in (("d.a", "excluded"), ("d.b", "dropped"), ("d.c", "live"))
    }
    states["d.e"] = TableState("d.e", "dropped", place=Place("d.all", shard="e"))
    action = {"id": "f", "type": "forget-table", "tables": ["d.a", "d.b", "d.c", "d.e", "d.gone"]}
    other = {"id": "x", "type": "execute-snapshot", "tables": ["d.b"]}
    left, (answered, same) = forget_tables([action, "old", other], states)
    assert left.keys() == {"d.c", "d.e"}
    assert answered["tables"] == ["d.a", "d.b", "d.gone"]
    refused, shard = answered["error"].split("; ")
    assert refused == "d.c: it is live, not dropped or excluded: leave it out of source.tables first"
    assert shard == "d.e: its rows are part of d.all"
    assert same == other
    assert action["tables"] == ["d.a", "d.b", "d.c", "d.e", "d.gone"], "the header stays as it is"


def test_a_problem_of_the_planner_stays() -> None:
    action = {"type": "forget-table", "tables": [], "error": "d.a is in source.tables: leave it out first"}
    assert forget_tables([action], {"d.a": TableState("d.a", "live")}) == ({"d.a": TableState("d.a", "live")}, [action])
