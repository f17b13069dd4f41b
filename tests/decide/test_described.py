"""Comments that a batch brings: from chunks, and from what was read with statements; images of the log have none."""

from __future__ import annotations

from dataclasses import replace

from headgate.catalog import RedefinedColumn
from headgate.config import SchemaChangesConfig
from headgate.decide import Arrival, Decision, Policy, TableBefore, decide
from headgate.decide.actions import Create, Describe
from headgate.lake import TableState, Target
from tests.fix_carrier import FakeBatch, FakeTable

NAME = "shop.orders"
PLAIN = FakeTable()
OLD = replace(PLAIN, comment="Orders", comments={"item": "what"})
NEW = replace(PLAIN, comment="All orders", comments={"id": "the number"})
LIVE = TableState(NAME, "live", version=4)


def decided(
    fake: FakeBatch, row: TableState | None = LIVE, target: Target | None = None, policy: Policy | None = None
) -> Decision:
    return decide(Arrival(NAME, fake.described()), TableBefore(row, target), policy or Policy())


def described(decision: Decision) -> list[tuple[str | None, dict[str, str]]]:
    actions = [*decision.actions, *decision.log_actions]
    return [(one.definition.comment, one.definition.comments) for one in actions if isinstance(one, Describe)]


def test_a_new_table_has_the_comments_from_its_first_version_on() -> None:
    """Whatever images come first."""
    fake = FakeBatch(9).snapshot(NAME, 9, append=True, first=True, last=True)
    fake.images(PLAIN, [("c", 5, 3, "x")]).chunk(OLD, [(1, "a")])
    work = decided(fake, None)
    assert isinstance(work.actions[0], Create)
    definition = work.actions[0].definition
    assert (definition.comment, definition.comments) == ("Orders", {"id": "", "item": "what"})


def test_images_of_the_log_bring_none() -> None:
    work = decided(FakeBatch(9).images(PLAIN, [("c", 5, 3, "x")]), target=PLAIN.target())
    assert described(work) == []


def test_the_last_statement_counts() -> None:
    fake = FakeBatch(9)
    for pos, table in ((5, NEW), (3, OLD)):
        fake.ddl(NAME, "ALTER TABLE orders COMMENT = '…'", "alter", pos, adds=(), schema=table)
    fake.ddl(NAME, "ALTER TABLE orders RENAME TO other", "alter", 7, adds=(), new_name="shop.other", schema=OLD)
    expected = ("All orders", {"id": "the number", "item": ""})
    assert described(decided(fake)) == [expected, expected], "of the table and of its changelog"
    only_log = Policy(form=None)
    assert described(decided(fake, policy=only_log)) == [expected]


def test_a_suspended_table_keeps_its_own() -> None:
    fake = FakeBatch(9).ddl(NAME, "ALTER TABLE orders COMMENT = '…'", "alter", 5, adds=(), schema=NEW)
    work = decided(fake, replace(LIVE, state="stale", reason="x", held_epoch=8), policy=Policy(changelog=False))
    assert described(work) == []


def test_columns_have_the_names_of_the_table() -> None:
    renamed = FakeTable(columns=(("id", "bigint"), ("thing", "string")), comment="x", comments={"thing": "what"})
    statement = RedefinedColumn("item", "thing")
    fake = FakeBatch(9).ddl(NAME, "ALTER …", "alter", 5, adds=(statement,), schema=renamed)
    policy = Policy(changelog=False, schema_changes=SchemaChangesConfig(rename_column="ignore"))
    assert described(decided(fake, target=PLAIN.target(), policy=policy)) == [("x", {"id": "", "item": "what"})]
