"""What a relay is told: Databus's files as they are, TOML, and which table is which source."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headgate.config import RelaySettings
from headgate.errors import ConfigError
from headgate.relay.server import LogicalSource, RelayConfig, SourceNames, _names, _tenants, load_relay
from tests.relay.server.serving import physical
from tools import generate_configuration

EXAMPLE = Path(__file__).parents[3] / "examples" / "or_person" / "conf"
SOURCES = json.loads((EXAMPLE / "sources-or-person.json").read_text())


def test_databuss_files() -> None:
    config = load_relay([EXAMPLE / "sources-or-person.json"], EXAMPLE / "relay_or_person.properties")
    (one,) = config.physical
    assert (one.id, one.name) == (1, "person")
    settings = one.settings
    assert (settings.host, settings.port, settings.user) == ("localhost", 33066, "or_test")
    assert settings.secret.resolve() == "or_test"
    assert one.sources == (LogicalSource(40, "com.linkedin.events.example.or_test.Person", "or_test.person", 1),)
    assert (config.port, config.memory_bytes) == (11115, 1_024_000_000)
    assert (config.schemas, config.state) == (Path("schemas_registry"), Path("maxScn"))
    assert one.shown == {**SOURCES, "uri": "mysql://or_test%2F***@localhost:33066/33066/mysql-bin"}
    plain = load_relay([EXAMPLE / "sources-or-person.json"])
    assert (plain.port, plain.state, plain.schemas) == (11115, None, None)


def of(tmp_path: Path, value: Any, properties: str | None = None) -> RelayConfig:
    file = tmp_path / "sources.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    if properties is None:
        return load_relay([file])
    other = tmp_path / "relay.properties"
    other.write_text(properties)
    return load_relay([file], other)


@pytest.mark.parametrize(
    ("uri", "user", "password", "shown"),
    [
        ("mysql://u%2fp@h/1/log", "u", "p", "mysql://u%2F***@h/1/log"),
        ("mysql://u:p%40x@h", "u", "p@x", "mysql://u%2F***@h"),
        ("mysql://u%2Fp%2Fq@h:1/33/a.b_c", "u", "p/q", "mysql://u%2F***@h:1/33/a.b_c"),
        ("mysql://u@h:1", "u", "", "mysql://u%2F***@h:1"),
    ],
)
def test_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, user: str, password: str, shown: str) -> None:
    monkeypatch.delenv("HEADGATE_PASSWORD", raising=False)
    (one,) = of(tmp_path, {**SOURCES, "uri": uri}).physical
    assert (one.settings.user, one.settings.secret.resolve(), one.shown["uri"]) == (user, password, shown)


def with_source(**more: Any) -> dict[str, Any]:
    return {**SOURCES, "sources": [{**SOURCES["sources"][0], **more}]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "is not JSON"), ({"id": 1, "name": "x", "uri": "mysql://u@h"}, r"json: sources is missing$"),
        ([], "no physical source"), (5, r"sources\.json: expected a section"), ([SOURCES, 5], r"json: \[1\]: expected"),
        ({**SOURCES, "sources": []}, "json: sources: expected a list"), ({**SOURCES, "id": 0}, "json: id: expected a"),
        ({**SOURCES, "uri": "http://u:secret@h"}, "json: uri: expected mysql://"),
        ({**SOURCES, "uri": "mysql://u@h:x"}, "json: uri: expected"),
        ({**SOURCES, "uri": "mysql://u@h:0"}, "json: uri: expected"), ({**SOURCES, "uri": None}, "json: uri: expected"),
        ({**SOURCES, "uri": "mysql://u%2Fsecret@h/x"}, "json: uri: expected"),
        (with_source(id=40_000), r"json: sources\[0\]\.id: expected a number"),
        (with_source(uri="person"), r"json: sources\[0\]\.uri: 'person' is not db\.table$"),
        ([SOURCES, with_source(uri="person")], r"json: \[1\]\.sources\[0\]\.uri: 'person'"),
        (with_source(partitionFunction="hash:1"), r"json: sources\[0\]\.partitionFunction: 'hash:1' is not constant:N"),
        (with_source(partitionFunction="constant:40000"), r"json: sources\[0\]\.partitionFunction: expected a number"),
        ([SOURCES, SOURCES], "physical source id 1 is used twice"),
        ([SOURCES, {**SOURCES, "id": 2}], "source id 40 is used twice"),
        ([SOURCES, {**with_source(id=41), "id": 2}], "source name .* is used twice"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_them(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        of(tmp_path, value)
    assert "secret" not in str(error.value)


def test_a_file_for_each_server(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**with_source(id=41, name="b.Other"), "id": 2, "name": "other"}))
    config = load_relay([EXAMPLE / "sources-or-person.json", other])
    assert [(one.id, one.name) for one in config.physical] == [(1, "person"), (2, "other")]
    toml = tmp_path / "relay.toml"
    with pytest.raises(ConfigError, match="do not give other files"):
        load_relay([other, toml])


def test_properties(tmp_path: Path) -> None:
    text = "! no\n# no\n\ndatabus.relay.container.httpPort = 8080\ndatabus.relay.eventBuffer.\\\n  maxSize=1000000\nx\n"
    config = of(tmp_path, SOURCES, text)
    assert (config.port, config.memory_bytes) == (8080, 1_000_000)
    for line, message in (
        (
            "container.httpPort=x",
            r"relay\.properties: databus\.relay\.container\.httpPort: expected a whole number, not \"x\"$",
        ),
        ("container.httpPort=65536", r"container\.httpPort: expected a number less than or equal to 65535"),
        ("eventBuffer.maxSize=1g", r"databus\.relay\.eventBuffer\.maxSize: expected a whole number, not \"1g\"$"),
        ("eventBuffer.queuePolicy=BLOCK_ON_WRITE", r"relay\.properties: databus\.relay\.eventBuffer\.queuePolicy is"),
    ):
        with pytest.raises(ConfigError, match=message):
            of(tmp_path, SOURCES, f"databus.relay.{line}")
    with pytest.raises(ConfigError, match=r"^3 mistakes: \(1\) physical source id 1 is used twice; "):
        of(tmp_path, [SOURCES, SOURCES], "")  # no mistake of the properties
    with pytest.raises(ConfigError, match=r"nowhere\.properties cannot be read"):
        load_relay([EXAMPLE / "sources-or-person.json"], tmp_path / "nowhere.properties")


TOML = """
port = 0
state = "state"
schemas = "/schemas"
scn = "binlog-offset"
event_version = 2
types = "databus"
memory_bytes = 1000000
disk_bytes = 2000000
[[physical]]
id = 2
name = "shop"
url = "mysql://reader@db:3306"
password_env = "DB_PASSWORD"
[[physical.sources]]
id = 7
name = "com.example.shop"
table = "shop.*"
partition = 3
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("scn =", "snc =", r"unknown key snc; did you mean scn\?"),
        ("table =", "tabel =", r"unknown key physical\[0\]\.sources\[0\]\.tabel; did you mean table\?"),
        ("disk_bytes =", "disk_byte =", r"unknown key disk_byte; did you mean disk_bytes\?"),
        ("= 1000000", "= 0", r"relay\.toml: memory_bytes: expected a number greater than or equal to 262144, not 0$"),
        ("= 2000000", "= 999999", r"relay\.toml: disk_bytes \(999999\) is less than memory_bytes \(1000000\)$"),
        ("= 2000000", "= 1", r"relay\.toml: disk_bytes \(1\) is less than memory_bytes"),
        ("port = 0", "log_disk_bytes = 1048575", r"relay\.toml: log_disk_bytes \(1048575\) is less than 1048576"),
        ('table = "shop.*"', "", r"physical\[0\]\.sources\[0\]\.table is missing$"),
        ("reader@", "reader:secret@", r"physical\[0\]\.url: leave the password out of the URL"),
        ("password_env", "password", r"physical\[0\]\.password; a file holds no password"),
        ("password_env", 'password_command = "p"\npassword_env', "password_env and password_command are both set"),
    ],
)
def test_mistakes_in_toml(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "relay.toml"
    file.write_text(TOML.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        load_relay([file])


def test_all_mistakes_in_toml_at_once(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    text = TOML.replace("port = 0", "prot = 0").replace("id = 7", "id = 0").replace("= 2000000", "= 1")
    file.write_text(f'{text}[[tenants]]\nname = "a"\n')
    with pytest.raises(ConfigError) as caught:
        load_relay([file])
    assert [line.removeprefix(f"{file}: ") for line in caught.value.lines] == [
        "unknown key prot; did you mean port?",
        "physical[0].sources[0].id: expected a number greater than or equal to 1, not 0",
        "tenants[0]: the tenant a needs either token_file or token_env",
    ]
    file.write_text(TOML.replace("mysql://", "mysql:/") + '[[tenants]]\nname = "a"\ntoken_env = "NOT_SET"\n')
    with pytest.raises(ConfigError, match=r"relay\.toml: physical\[0\]\.url: expected mysql://"):
        load_relay([file])


def test_all_mistakes_in_files_of_databus_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        of(tmp_path, [{**SOURCES, "id": 0}, with_source(uri="person")], "databus.relay.container.httpPort=x")
    assert [line.rpartition("/")[2] for line in caught.value.lines] == [
        "sources.json: [0].id: expected a number greater than or equal to 1, not 0",
        "sources.json: [1].sources[0].uri: 'person' is not db.table",
        'relay.properties: databus.relay.container.httpPort: expected a whole number, not "x"',
    ]


def test_toml(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    file.write_text(TOML, "utf-8-sig")  # as some editors do
    config = load_relay([file])
    assert config == RelayConfig(
        physical=config.physical, port=0, state=tmp_path / "state", schemas=Path("/schemas"), scn="binlog-offset",
        event_version=2, types="databus", memory_bytes=1_000_000, disk_bytes=2_000_000
    )  # fmt: skip
    (one,) = config.physical
    assert one.sources == (LogicalSource(7, "com.example.shop", "shop.*", 3),)
    assert one.sources[0].is_pattern
    assert one.settings.secret.env == "DB_PASSWORD"
    file.write_text(TOML.replace("password_env", "password_command"))
    assert load_relay([file]).physical[0].settings.secret.command == "DB_PASSWORD"
    assert one.shown["uri"] == "mysql://reader@db:3306"
    for old, new, message in (
        ("port = 0", "prot = 0", "prot"), ('"binlog-offset"', '"guess"', "scn"),
        ('table = "shop.*"', 'table = "x"', "'x'"),
        ("[[physical]]", "[[physical", "is not TOML"), ('state = "state"', "", "needs a state folder"),
        ("id = 7", "id = 70000", r"physical\[0\]\.sources\[0\]\.id"),
        ("mysql://", "http://", r"physical\[0\]\.url: expected mysql://"),
    ):  # fmt: skip
        file.write_text(TOML.replace(old, new))
        with pytest.raises(ConfigError, match=message):
            load_relay([file])
    with pytest.raises(ConfigError, match="do not give properties"):
        load_relay([file], EXAMPLE / "relay_or_person.properties")


def test_the_page_has_every_key() -> None:
    written = generate_configuration.RELAY_PAGE.read_text(encoding="utf-8")
    assert written == generate_configuration.relay_page(), "run python tools/generate_configuration.py"
    assert all(f"\n| `{name}` | " in written for name in RelaySettings.model_fields)


def test_a_password_file_starts_at_the_files_folder(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    file.write_text(TOML.replace('password_env = "DB_PASSWORD"', 'password_file = "pw"'))
    assert load_relay([file]).physical[0].settings.secret.file == str(tmp_path / "pw")


def test_a_patterns_tables_keep_their_ids(tmp_path: Path) -> None:
    sources = (LogicalSource(12, "a.Fixed", "d.fixed"), LogicalSource(11, "b", "d.*"))
    file = tmp_path / "state" / "sources.json"
    names = SourceNames([physical(1, "x", *sources)], file)
    assert names.all() == [sources[0]]
    assert names.find(1, "d", "fixed") is sources[0]
    matched = [names.find(1, "d", table) for table in ("t", "s", "t", "u")]
    assert [(one.id, one.name, one.table) for one in matched] == [
        (11, "b.d.t", "d.t"), (13, "b.d.s", "d.s"), (11, "b.d.t", "d.t"), (14, "b.d.u", "d.u"),
    ]  # fmt: skip
    again = SourceNames([physical(1, "x", *sources)], file)
    assert again.all() == names.all()
    assert [again.find(1, "d", table).id for table in ("v", "u", "s")] == [15, 14, 13]
    assert (again.physical_of(15), again.by_id(15), again.by_id(16)) == (1, again.find(1, "d", "v"), None)


def test_ids_end() -> None:
    names = SourceNames([physical(1, "x", LogicalSource(2**15 - 1, "b", "d.*"))])
    assert names.find(1, "d", "a").id == 2**15 - 1
    with pytest.raises(ConfigError, match="no source id is left"):
        names.find(1, "d", "b")


def test_an_id_is_not_given_again_whatever_its_table_became(tmp_path: Path) -> None:
    pattern, other, file = LogicalSource(11, "b", "d.*"), LogicalSource(12, "c", "e.*"), tmp_path / "sources.json"
    names = SourceNames([physical(1, "x", pattern), physical(2, "y", other)], file)
    assert [names.find(*one).id for one in ((1, "d", "s"), (2, "e", "t"))] == [11, 12]
    # The second server is gone, or has another number.
    without = SourceNames([physical(1, "x", pattern)], file)
    assert [one.id for one in without.all()] == [11]
    assert (without.by_id(12), without.select().partitions, without.select((12,)).unknown) == (None, (1,), 12)
    assert without.find(1, "d", "u").id == 13
    moved = SourceNames([physical(1, "x", pattern), physical(3, "y", other)], file)
    assert [one.id for one in moved.all()] == [11, 13]
    assert moved.find(3, "e", "t").id == 14
    back = SourceNames([physical(1, "x", pattern), physical(2, "y", other)], file)
    assert [(one.id, back.physical_of(one.id)) for one in back.all()] == [(11, 1), (12, 2), (13, 1)]
    # The first table has a source of its own.
    explicit = LogicalSource(500, "a.S", "d.s")
    replaced = SourceNames([physical(1, "x", pattern, explicit)], file)
    assert replaced.find(1, "d", "s") == explicit
    assert replaced.find(1, "d", "v").id == 15
    with pytest.raises(ConfigError, match=r"the id 11 of c\.New already belongs to d\.s"):
        SourceNames([physical(1, "x", pattern, explicit, LogicalSource(11, "c.New", "d.new"))], file)
    with pytest.raises(ConfigError, match=r"the id 13 of c\.New already belongs to d\.u"):
        SourceNames([physical(1, "x", pattern, LogicalSource(13, "c.New", "d.new"))], file)
    same = LogicalSource(13, "c.New", "d.u")  # of that very table it is no other
    assert SourceNames([physical(1, "x", pattern, same)], file).by_id(13) == same


def test_sources_are_asked_for_while_tables_turn_up() -> None:
    names = SourceNames(
        [physical(1, "x", LogicalSource(1, "b", "d.*")), physical(2, "y", LogicalSource(9999, "c", "e.f"))]
    )
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        finder = threading.Thread(target=lambda: [names.find(1, "d", f"t{k}") for k in range(2000)])
        finder.start()
        seen = 0
        while finder.is_alive() or seen < 2000:
            selection = names.select()
            (*ids, last) = selection.ids
            assert (ids, last) == (list(range(1, len(selection.ids))), 9999)
            assert len(ids) >= seen
            seen = len(ids)
            assert seen == 0 or names.by_id(seen) is not None
            assert names.by_id(9999) is not None
            assert names.select((9999,)).whole == {2}
        finder.join()
    finally:
        sys.setswitchinterval(interval)


def test_new_tables_of_two_servers_at_the_same_time(tmp_path: Path) -> None:
    sources = [physical(n, f"p{n}", LogicalSource(10 * n, f"a{n}", "d.*")) for n in (1, 2)]
    names, together = SourceNames(sources, tmp_path / "sources.json"), threading.Barrier(2)
    errors: list[Exception] = []

    def find(number: int) -> None:
        together.wait(60)
        try:
            for k in range(20):
                names.find(number, "d", f"t{k}")
        except ConfigError as error:
            errors.append(error)

    finders = [threading.Thread(target=find, args=(number,)) for number in (1, 2)]
    for finder in finders:
        finder.start()
    for finder in finders:
        finder.join()
    assert errors == []
    known = names.all()
    assert len(known) == len({one.id for one in known}) == 40
    assert SourceNames(sources, tmp_path / "sources.json").all() == known


def test_sources_by_name_are_matched_once_until_another_one_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting tenant's request is looked at hundreds of times a second."""
    matched: list[str] = []

    def noted(source: str, wanted: tuple[str, ...]) -> bool:
        matched.append(source)
        return _tenants.is_named(source, wanted)

    monkeypatch.setattr(_names, "is_named", noted)
    names = SourceNames([physical(1, "x", LogicalSource(5, "a.S", "d.s"), LogicalSource(11, "b", "d.*"))])
    for count in (1, 1):
        assert names.select_named(("b.*", "a.T")).ids == ()
        assert (names.select_named(None), len(matched)) == (names.select(), count)
    names.find(1, "d", "t")
    for _ in range(2):
        assert (names.select_named(("b.*", "a.T")).ids, len(matched)) == ((11,), 3)


def test_selections() -> None:
    names = SourceNames(
        [
            physical(1, "x", LogicalSource(1, "a", "d.a"), LogicalSource(2, "b", "d.b"), LogicalSource(5, "p", "e.*")),
            physical(2, "y", LogicalSource(3, "c", "d.c")),
        ]
    )
    some = names.select((3, 1, 1))
    assert (some.ids, [one.id for one in some.sources], some.unknown) == ((3, 1, 1), [3, 1, 1], None)
    assert (some.partitions, sorted(some.whole)) == ((1, 2), [2])
    assert names.select((3, 1, 1)) is some
    both = names.select((1, 2, 7))
    assert (both.unknown, both.partitions, sorted(both.whole)) == (7, (1,), [1])
    assert names.select().ids == (1, 2, 3)
    new = names.find(1, "e", "new")
    assert names.select((1, 2, 7)).whole == frozenset()
    assert names.select().ids == (1, 2, 3, new.id)
    assert names.select((1, 2, new.id)).whole == {1}
    for number in range(1000):  # what is kept is bounded
        names.select((number,))
    assert names._selected.cache_info().currsize <= 256
