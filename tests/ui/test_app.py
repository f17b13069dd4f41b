"""The pages, asked through ASGI without a server: what they show, to whom, and what a signal does."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.types import ASGIApp, Message

from headgate.carrier import ControlFolder
from headgate.config import PipelineConfig, SourceConfig, parse_config
from headgate.control import parse_signal, submit
from headgate.errors import ConfigError, ConnectError, HeadgateError
from headgate.ui import Token, Watched, WatchedFile, create_app
from tests.ui.status import put, reading

SECRET = "correct-horse-battery"
BEARER = {"authorization": f"Bearer {SECRET}"}
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
PAUSE = json.dumps({"id": "one", "type": "pause-snapshot", "data": {}}).encode()


@dataclass
class Answer:
    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def value(self) -> Any:
        return json.loads(self.body)


def ask(
    app: ASGIApp, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
) -> Answer:
    """One request through ASGI; without headers it comes from this machine and from no page."""
    all_headers = {"host": "127.0.0.1:8321", **(headers or {})}
    route, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": route, "raw_path": route.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in all_headers.items()],
        "client": ("127.0.0.1", 50000), "server": ("127.0.0.1", 8321),
    }  # fmt: skip
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        left = [{"type": "http.request", "body": body, "more_body": False}]
        ended = asyncio.Event()

        async def receive() -> Message:
            if left:
                return left.pop()
            await ended.wait()
            return {"type": "http.disconnect"}

        await app(scope, receive, send)

    asyncio.run(run())
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}, content)


@pytest.fixture
def inbox(tmp_path: Path) -> ControlFolder:
    folder = ControlFolder(str(tmp_path / "inbox"))
    put(folder)
    return folder


@pytest.fixture
def app(inbox: ControlFolder) -> ASGIApp:
    """A page without a token."""
    return create_app([Watched("shop", inbox)])


@pytest.fixture
def guarded(inbox: ControlFolder) -> ASGIApp:
    """A page with one."""
    return create_app([Watched("shop", inbox)], token=Token(SECRET))


def signals(inbox: ControlFolder) -> list[dict[str, Any]]:
    return [dict(signal) for signal in inbox.signals().values()]


# --- what is shown


def test_the_page(app: ASGIApp) -> None:
    page = ask(app, "/")
    assert (page.code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    text = " ".join(re.sub(r"<[^>]*>", " ", page.text).split())
    for shown in ("shop running", "lag 1.5 s", "transactions behind ≥ 312", "changes per second 41.2", "25,000",
                  "freshness p50, p99 0.8 s, 2.1 s",
                  "lag 1.5 s at most 12 s in ten minutes", "shop.notes live 1",
                  "750,000 of about 2,000,000 rows (37 %), 3 of 8 chunks", "shop.old stopped ALTER TABLE old",
                  "shop.gone dropped DROP TABLE gone",
                  "shop.orders live 4,321",
                  "warning", "the last 3 batches"):  # fmt: skip
        assert shown in text
    assert re.search(r"partly [\d.]+ s ago : execute-snapshot of shop.notes: no table x s-1", text)
    assert '<progress max="2000000" value="750000"' in page.text
    assert "<form" not in page.text, "there is no token, so there are no signals"
    assert '<noscript><meta http-equiv="refresh"' in page.text


def test_the_fragment_is_what_the_page_holds(app: ASGIApp) -> None:
    fragment = ask(app, "/content")
    assert fragment.code == 200
    assert "<html" not in fragment.text
    assert fragment.text.lstrip().startswith('<section class="pipeline"')


class Links(HTMLParser):
    """Where a page would load something from, and what runs in it."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "action"):
                self.addresses.append(value or "")
            if name == "style" or name.startswith("on") or (tag == "script" and "src" not in dict(attrs)):
                self.inline.append(f"{tag} {name}")


def test_nothing_comes_from_elsewhere(guarded: ASGIApp) -> None:
    page = ask(guarded, "/")
    links = Links()
    links.feed(page.text)
    assert links.inline == []
    assert "static/page.js" in links.addresses
    for link in links.addresses:
        assert "//" not in link
        if not link.startswith("#") and link != "signals":
            assert ask(guarded, f"/{link}").code == 200
    for file in ("page.js", "style.css"):
        assert "http" not in ask(guarded, f"/static/{file}").text
    assert ask(guarded, "/static/../_app.py").code == 404
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-store"


def test_what_others_wrote_is_escaped(inbox: ControlFolder, app: ASGIApp) -> None:
    evil = "<script>alert(1)</script>\"'&"
    put(
        inbox, error=evil, tables={f"shop.{evil}": {"state": "stale", "reason": evil}},
        warnings=[{"at_us": 1, "level": "error", "text": evil}],
    )  # fmt: skip
    text = ask(app, "/").text
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;") >= 4
    metrics = ask(app, "/metrics").text
    assert 'table="shop.<script>alert(1)</script>\\"\'&"' in metrics


def test_plots_are_there_if_the_pipeline_ran_lately(inbox: ControlFolder, app: ASGIApp) -> None:
    page = ask(app, "/").text
    assert page.count("<svg") == page.count('role="img"') == page.count("<title id=") == page.count("<desc id=") == 2
    for old in ({}, {"at_us": [1, 2], "lag_seconds": [1.0, 2.0], "changes_per_second": [0.0, 0.0]}):
        put(inbox, history=old)
        assert "<svg" not in ask(app, "/").text


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"state": "failed", "error": "no grant"}, "Error: no grant"),
        ({"state": "running", "error": "the connection ended"}, "Trying again after: the connection ended"),
        ({"updated_us": 1}, "shop not running"),
        ({"state": "stopped"}, "shop stopped"),
        ({"state": "stopped"}, "lag at most 12 s in ten minutes"),
        ({"state": "stopped", "paused": True}, "reading tables is paused"),
        (
            {"activity": reading(), "index": {"tables_building": 1, "bytes_on_disk": 240_000_000}},
            "building key indexes of 1 table, 240 MB on disk",
        ),
        ({"kafka": {"messages": 1234, "bytes": 99_000}}, "messages to Kafka 1,234"),
        ({}, "files 123 files, 2.5 MB"),
        (
            {"requests": {"seconds": 60, "put": 5, "get": 7, "list": 3}},
            "requests 11,520 PUT and LIST, 10,080 GET a day",
        ),
        ({"freshness": {}}, "freshness p50, p99 no changes lately"),
        ({"tables": {"shop.a": {"state": "snapshotting"}}}, "shop.a snapshotting waits to be read"),
        ({"batch": None, "recent": [], "warnings": [], "tables": {}}, "newest batch none"),
    ],
)
def test_other_conditions(inbox: ControlFolder, app: ASGIApp, more: dict[str, Any], shown: str) -> None:
    put(inbox, **more)
    text = " ".join(re.sub(r"<[^>]*>", " ", ask(app, "/").text).split()).replace(" :", ":")
    assert shown in text


def test_before_the_first_run_and_with_a_damaged_file(tmp_path: Path) -> None:
    inbox = ControlFolder(str(tmp_path / "nothing"))
    app = create_app([Watched("shop", inbox)])
    assert "has not run yet" in ask(app, "/").text
    assert ask(app, "/api/status").value["pipelines"] == [
        {"pipeline": "shop", "signals": [], "condition": "not running"}
    ]
    submit(inbox, parse_signal({"id": "one", "type": "pause-snapshot"}))
    assert 'pause-snapshot <span class="note">one</span>' in ask(app, "/").text
    assert [one["id"] for one in ask(app, "/api/status").value["pipelines"][0]["signals"]] == ["one"]
    inbox.write("status.json", {"v": 1})
    assert "status.json is damaged" in ask(app, "/").text
    (pipeline,) = ask(app, "/api/status").value["pipelines"]
    assert pipeline["condition"] == "unknown"
    assert "damaged" in pipeline["problem"]
    assert 'headgate_up{pipeline="shop"} 0.0' in ask(app, "/metrics").text


def test_many_tables_are_shown_when_asked_for(inbox: ControlFolder, app: ASGIApp) -> None:
    tables = {f"shop.t{number:04}": {"state": "live"} for number in range(1000)}
    put(inbox, tables={**tables, "shop.z": {"state": "stale", "reason": "ALTER"}})
    page = ask(app, "/").text
    assert page.count('scope="row">shop.') == 200
    assert "shop.z" in page, "what needs care comes first"
    assert 'href="?all=1">Show all 1,001 tables' in page
    assert ask(app, "/content?all=1").text.count('scope="row">shop.') == 1001


def test_the_status_of_another_pipeline_is_a_problem(inbox: ControlFolder) -> None:
    put(inbox)
    app = create_app([Watched("copy", inbox)])
    (shown,) = ask(app, "/api/status").value["pipelines"]
    assert (shown["condition"], "tables" in shown) == ("unknown", False)
    assert "belongs to pipeline 'shop', not to pipeline 'copy'" in shown["problem"]
    app = create_app([Watched("copy", inbox)], token=Token(SECRET))
    answer = ask(app, "/signals", "POST", {**BEARER, **JSON}, PAUSE)
    assert (answer.code, "belongs to pipeline 'shop'" in answer.text) == (503, True)
    assert inbox.signals() == {}


def test_several_pipelines(tmp_path: Path) -> None:
    watched = [Watched(name, ControlFolder(str(tmp_path / name))) for name in ("shop", "billing")]
    put(watched[0].inbox)
    app = create_app(watched)
    page = ask(app, "/").text
    assert '<a href="#pipeline-billing">' in page
    assert 'id="pipeline-billing"' in page
    assert [one["pipeline"] for one in ask(app, "/api/status").value["pipelines"]] == ["shop", "billing"]
    with pytest.raises(ConfigError, match="two pipelines are named shop"):
        create_app([watched[0], watched[0]])


def test_a_pipeline_of_a_configuration(tmp_path: Path) -> None:
    config = parse_config(
        f'name = "shop"\n[source]\nurl = "mysql://u@h"\ntables = ["a.b"]\n[target]\npath = "{tmp_path}/lake"\n'
    )
    watched = Watched.of(config)
    assert (watched.name, watched.inbox.path) == ("shop", f"{tmp_path}/lake/_headgate/inbox")


def test_json_is_the_file(inbox: ControlFolder, app: ASGIApp) -> None:
    status = put(inbox)
    answer = ask(app, "/api/status")
    assert answer.headers["content-type"] == "application/json"
    assert answer.value == {"v": 1, "pipelines": [{**status.to_dict(), "condition": "running"}]}


# --- who may look


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8321", "[::1]:8321", "127.8.9.1", "LOCALHOST"])
def test_this_machine_may_look(app: ASGIApp, host: str) -> None:
    assert ask(app, "/", headers={"host": host}).code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8321", "10.0.0.1", "localhost.evil.example", ""])
@pytest.mark.parametrize("path", ["/", "/content", "/api/status", "/metrics"])
def test_other_names_for_this_machine_may_not(app: ASGIApp, host: str, path: str) -> None:
    answer = ask(app, path, headers={"host": host})
    assert answer.code == 421
    assert "shop" not in answer.text


def test_elsewhere_everything_needs_the_token(inbox: ControlFolder) -> None:
    with pytest.raises(ConfigError, match="--token-file"):
        create_app([Watched("shop", inbox)], host="0.0.0.0")
    app = create_app([Watched("shop", inbox)], host="0.0.0.0", token=Token(SECRET))
    host = {"host": "watch.example"}

    def basic(text: str) -> str:
        return "Basic " + base64.b64encode(text.encode()).decode()

    for path in ("/", "/api/status", "/metrics", "/static/page.js"):
        answer = ask(app, path, headers=host)
        assert (answer.code, answer.headers["www-authenticate"]) == (401, 'Basic realm="headgate"')
        assert "shop" not in answer.text
        for wrong in (
            "Bearer x", f"Bearer {SECRET}x", basic("me:x"), basic(SECRET), "Basic %", "Basic é", "Basic", "Bearer é",
        ):  # fmt: skip
            assert ask(app, path, headers={**host, "authorization": wrong}).code == 401
        for right in (f"Bearer {SECRET}", f"bearer  {SECRET}", basic(f"me:{SECRET}"), basic(f":{SECRET}")):
            assert ask(app, path, headers={**host, "authorization": right}).code == 200
    reading = {**host, "authorization": basic(f"me:{SECRET}")}
    assert ask(app, "/signals", "POST", {**reading, **JSON}, PAUSE).code == 401, "a browser adds Basic by itself"
    assert ask(app, "/signals", "POST", {**host, **BEARER, **JSON}, PAUSE).code == 202


def test_the_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"  {SECRET}\n")
    token = Token.from_file(file)
    assert token.equals(SECRET)
    assert SECRET not in repr(token)
    file.write_text("short\n")
    with pytest.raises(ConfigError, match="openssl rand") as caught:
        Token.from_file(file)
    assert "short\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        Token.from_file(tmp_path / "none")
    file.write_bytes(b"\xff" * 20)
    with pytest.raises(ConfigError, match="not UTF-8"):
        Token.from_file(file)


def test_the_token_is_nowhere(guarded: ASGIApp) -> None:
    for path in ("/", "/content", "/api/status", "/metrics"):
        assert SECRET not in ask(guarded, path, headers=BEARER).text
    form = urlencode({"token": SECRET, "type": "dance"}).encode()
    assert SECRET not in ask(guarded, "/signals", "POST", {**FORM, "accept": "text/html"}, form).text


# --- signals


def test_a_signal_as_json(guarded: ASGIApp, inbox: ControlFolder) -> None:
    posted = {"id": "mine", "type": "execute-snapshot", "data": {"data-collections": [r"shop\.orders"]}}
    answer = ask(guarded, "/signals", "POST", {**BEARER, **JSON}, json.dumps(posted).encode())
    assert (answer.code, answer.value) == (202, {"id": "mine", "type": "execute-snapshot", "pipeline": "shop"})
    (signal,) = signals(inbox)
    assert (signal["id"], signal["data"]["data-collections"]) == ("mine", [r"shop\.orders"])


def test_a_signal_from_the_form(guarded: ASGIApp, inbox: ControlFolder) -> None:
    assert 'action="signals"' in ask(guarded, "/").text
    fields = {
        "pipeline": "shop", "type": "execute-snapshot", "tables": "shop.a\r\n\r\n shop.b ", "kind": "BLOCKING",
        "condition": " qty > 1 ", "token": SECRET,
    }  # fmt: skip
    headers = {**FORM, "accept": "text/html", "origin": "http://127.0.0.1:8321", "sec-fetch-site": "same-origin"}
    answer = ask(guarded, "/signals", "POST", headers, urlencode(fields).encode())
    assert answer.code == 202
    (signal,) = signals(inbox)
    assert signal["id"] in answer.text
    assert signal["data"] == {
        "type": "BLOCKING",
        "data-collections": ["shop\\.a", "shop\\.b"],
        "additional-conditions": [
            {"data-collection": "shop\\.a", "filter": "qty > 1"}, {"data-collection": "shop\\.b", "filter": "qty > 1"},
        ],
    }  # fmt: skip
    for kind in ("stop-snapshot", "pause-snapshot", "resume-snapshot"):
        assert ask(guarded, "/signals", "POST", FORM, urlencode({**fields, "type": kind}).encode()).code == 202
    assert [one["data"].get("data-collections") for one in signals(inbox) if one["type"] == "stop-snapshot"] == [
        ["shop\\.a", "shop\\.b"]
    ]
    for kind, code in (("pause-snapshot", 202), ("resume-snapshot", 202), ("stop-snapshot", 400)):
        body = urlencode({**fields, "type": kind, "tables": "all of them"}).encode()
        assert ask(guarded, "/signals", "POST", FORM, body).code == code


@pytest.mark.parametrize(
    ("headers", "body", "code", "message"),
    [
        (JSON, PAUSE, 401, "token"),
        ({**JSON, "authorization": "Bearer correct-horse-batterz"}, PAUSE, 401, "token"),
        (FORM, urlencode({"type": "pause-snapshot", "token": "x"}).encode(), 401, "token"),
        ({**BEARER, **JSON}, b"{", 400, "not JSON"),
        ({**BEARER, **JSON}, b'{"type": "pause-snapshots"}', 400, "did you mean pause-snapshot"),
        ({**BEARER, **JSON}, b"\xff", 400, "not JSON"),
        ({**BEARER, **FORM}, b"\xff=\xff", 400, "not a form"),
        ({**BEARER, **JSON}, b" " * (1 << 20) + PAUSE, 413, "1 MiB at most"),
        ({**BEARER, **JSON, "origin": "http://evil.example"}, PAUSE, 403, "other pages"),
        ({**BEARER, **JSON, "origin": "http://127.0.0.1:9999"}, PAUSE, 403, "other pages"),
        ({**BEARER, **JSON, "origin": "null"}, PAUSE, 403, "other pages"),
        ({**BEARER, **JSON, "origin": "http://["}, PAUSE, 403, "other pages"),
        ({**BEARER, **JSON, "sec-fetch-site": "cross-site"}, PAUSE, 403, "other pages"),
        ({**BEARER, **JSON, "sec-fetch-site": "same-site"}, PAUSE, 403, "other pages"),
        ({**BEARER, **JSON, "host": "evil.example", "origin": "http://evil.example"}, PAUSE, 421, "localhost"),
    ],
)
def test_signals_that_are_not_taken(
    guarded: ASGIApp, inbox: ControlFolder, headers: dict[str, str], body: bytes, code: int, message: str
) -> None:
    answer = ask(guarded, "/signals", "POST", headers, body)
    assert answer.code == code
    assert message in answer.text
    assert signals(inbox) == []


def test_without_a_token_there_are_no_signals(app: ASGIApp, inbox: ControlFolder) -> None:
    assert ask(app, "/signals", "POST", {**BEARER, **JSON}, PAUSE).code == 403
    assert ask(app, "/signals", "GET").code == 405
    assert signals(inbox) == []


def test_which_pipeline(tmp_path: Path) -> None:
    watched = [Watched(name, ControlFolder(str(tmp_path / name))) for name in ("shop", "billing")]
    app = create_app(watched, token=Token(SECRET))
    for path in ("/signals", "/signals?pipeline=none"):
        answer = ask(app, path, "POST", {**BEARER, **JSON}, PAUSE)
        assert (answer.code, "shop, billing" in answer.value["problem"]) == (404, True)
    assert ask(app, "/signals?pipeline=billing", "POST", {**BEARER, **JSON}, PAUSE).code == 202
    assert [len(signals(one.inbox)) for one in watched] == [0, 1]


def test_an_inbox_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    app = create_app([Watched("shop", ControlFolder(str(tmp_path / "file")))], token=Token(SECRET))
    answer = ask(app, "/signals", "POST", {**BEARER, **JSON}, PAUSE)
    assert (answer.code, "cannot be written" in answer.value["problem"]) == (503, True)


# --- replacing a pipeline's file

TOML = 'name = "shop"\n[source]\nurl = "mysql://u@h"\ntables = ["a.b"]\n[target]\npath = "/lake"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.toml"
    path.write_text(TOML)
    return path


def replacing(file: Path, inbox: ControlFolder, *refused: HeadgateError) -> tuple[ASGIApp, list[Any]]:
    """An app, and what it had checked."""
    seen: list[Any] = []

    def check(config: PipelineConfig) -> None:
        seen.append(config.source.tables)
        for error in refused:
            raise error

    watched = Watched("shop", inbox, WatchedFile(file, parse_config(TOML), check))
    return create_app([watched], token=Token(SECRET)), seen


def test_a_good_configuration_takes_the_files_place(file: Path, inbox: ControlFolder) -> None:
    app, seen = replacing(file, inbox)
    new = TOML.replace("a.b", "a.*") + "# é\n"
    inode, beside = file.stat().st_ino, {*file.parent.iterdir()}
    answer = ask(app, "/config", "PUT", BEARER, new.encode())
    assert (answer.code, answer.value) == (202, {"pipeline": "shop"})
    assert file.read_text(encoding="utf-8") == new
    assert file.stat().st_ino != inode, "replaced whole, not written over"
    assert {*file.parent.iterdir()} == beside
    assert seen == [("a.*",)]


def test_a_replaced_file_keeps_its_link_and_permissions(
    file: Path, inbox: ControlFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where folders cannot be synced: an error after the replacement would say that nothing has changed."""
    really, link, new = os.fsync, file.with_name("link.toml"), f"{TOML}# new\n"

    def only_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        really(descriptor)

    file.chmod(0o640)
    link.symlink_to(file)
    monkeypatch.setattr(os, "fsync", only_files)
    answer = ask(replacing(link, inbox)[0], "/config", "PUT", BEARER, new.encode())
    assert (answer.code, answer.value) == (202, {"pipeline": "shop"})
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, new, 0o640)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"name =", "the configuration is not TOML"),
        (b"\xff", "is not UTF-8"),
        (TOML.replace("tables", "chunk_row = 1\ntables").encode(), "did you mean chunk_rows"),
        (TOML.replace('"shop"', '"shops"').encode(), "name changed: restart the pipeline"),
        (TOML.replace('"/lake"', '"/elsewhere"').encode(), "target changed: restart the pipeline"),
        (TOML.replace("u@h", "u@evil").encode(), "source.url can be changed in the file only"),
        (TOML.replace("tables", 'password_env = "HOME"\ntables').encode(), "source.password_env can be changed"),
        (TOML.replace("tables", 'password_command = "id"\ntables').encode(), "source.password_command can be changed"),
        (TOML.replace("tables", 'relay = "http://evil:1"\ntables').encode(), "source.relay can be changed"),
        ((TOML + '[tables."a.b"]\nhook = "os:system"\n').encode(), 'tables."a.b".hook can be changed'),
    ],
)
def test_a_bad_configuration_is_refused_with_the_reason(
    file: Path, inbox: ControlFolder, body: bytes, message: str
) -> None:
    app, seen = replacing(file, inbox)
    answer = ask(app, "/config", "PUT", BEARER, body)
    assert answer.code == 400
    assert message in answer.value["problem"]
    assert (file.read_text(), seen) == (TOML, [])


def test_what_must_not_change_is_that_of_the_file_now(file: Path, inbox: ControlFolder) -> None:
    """It may have changed since the page began, and the run with it."""
    app, _ = replacing(file, inbox)
    edited = TOML.replace("/lake", "/other")
    file.write_text(edited)
    for text, code in ((TOML.replace("a.b", "a.*"), 400), (edited.replace("a.b", "a.*"), 202)):
        assert file.read_text() == edited
        assert ask(app, "/config", "PUT", BEARER, text.encode()).code == code
    assert file.read_text() == edited.replace("a.b", "a.*")


def test_the_page_cannot_choose_which_secrets_are_read(file: Path, inbox: ControlFolder) -> None:
    before = TOML.replace("tables", 'relay = "http://r:1"\ntables')
    file.write_text(before)
    app, seen = replacing(file, inbox)
    keys = [name for name in SourceConfig.model_fields if name.endswith(("_env", "_file"))]
    assert {"password_file", "relay_token_file", "relay_ca_file", "mask_key_file"} <= {*keys}
    for key in keys:
        answer = ask(app, "/config", "PUT", BEARER, before.replace("tables", f'{key} = "HOME"\ntables').encode())
        assert (answer.code, f"source.{key} can be changed in the file only" in answer.value["problem"]) == (400, True)
    assert (file.read_text(), seen) == (before, [])


@pytest.mark.parametrize(("error", "code"), [(ConfigError("no table a.*"), 400), (ConnectError("away"), 503)])
def test_one_that_the_source_refuses_is_refused(
    file: Path, inbox: ControlFolder, error: HeadgateError, code: int
) -> None:
    app, seen = replacing(file, inbox, error)
    answer = ask(app, "/config", "PUT", BEARER, TOML.replace("a.b", "a.*").encode())
    assert (answer.code, answer.value) == (code, {"problem": error.message})
    assert (file.read_text(), seen) == (TOML, [("a.*",)])


def test_who_has_no_token_replaces_nothing(file: Path, inbox: ControlFolder) -> None:
    app, seen = replacing(file, inbox)
    basic = base64.b64encode(f"me:{SECRET}".encode()).decode()
    for headers, code in (
        ({}, 401), ({"authorization": "Bearer not-it-at-all-1234"}, 401), ({"authorization": f"Basic {basic}"}, 401),
        ({**BEARER, "origin": "http://evil.example"}, 403), ({**BEARER, "sec-fetch-site": "cross-site"}, 403),
        ({**BEARER, "host": "evil.example"}, 421),
    ):  # fmt: skip
        assert ask(app, "/config", "PUT", headers, TOML.encode()).code == code
    without = create_app([Watched("shop", inbox, WatchedFile(file, parse_config(TOML), seen.append))])
    assert ask(without, "/config", "PUT", BEARER, TOML.encode()).code == 403
    unknown = create_app([Watched("shop", inbox)], token=Token(SECRET))
    assert ask(unknown, "/config", "PUT", BEARER, TOML.encode()).code == 404
    assert ask(app, "/config?pipeline=other", "PUT", BEARER, TOML.encode()).code == 404
    assert seen == []


def test_a_file_that_cannot_be_written_stays(file: Path, inbox: ControlFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = replacing(file, inbox)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    answer = ask(app, "/config", "PUT", BEARER, TOML.replace("a.b", "a.*").encode())
    assert (answer.code, answer.value["problem"]) == (
        503,
        "the file cannot be written: No space left on device; make room on its disk",
    )
    assert file.read_text() == TOML
    assert list(file.parent.glob(".pipeline*")) == []


@pytest.mark.parametrize("host", ["127.0.0.1:8321", "10.0.0.7:8321", ""])
@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, 200),
        ({"state": "idle"}, 200),
        ({"batches": 0}, 503),
        ({"batches": 0, "state": "idle"}, 200),
        ({"error": "cannot connect to MySQL"}, 503),
        ({"state": "failed"}, 503),
        ({"state": "stopped"}, 503),
        ({"updated_us": 1}, 503),
    ],
)
def test_probes_need_no_token_and_name_nothing(tmp_path: Path, host: str, more: dict[str, Any], code: int) -> None:
    inbox = ControlFolder(str(tmp_path))
    put(inbox, **more)
    for app in (
        create_app([Watched("shop", inbox)]),
        create_app([Watched("shop", inbox)], host="0.0.0.0", token=Token(SECRET)),
    ):
        assert ask(app, "/healthz", headers={"host": host}).text == "alive\n"
        answer = ask(app, "/readyz", headers={"host": host})
        assert (answer.code, answer.text) == (code, "ready\n" if code == 200 else "not ready\n")
        assert ask(app, "/readyz", "POST", {"host": host}).code in (405, 421)


def test_a_page_is_ready_if_all_its_pipelines_are(tmp_path: Path) -> None:
    inboxes = [ControlFolder(str(tmp_path / name)) for name in ("a", "b", "c")]
    for number, inbox in enumerate(inboxes[:2]):
        put(inbox, str(number))
    pages = [
        create_app([Watched(str(number), inbox) for number, inbox in enumerate(some)])
        for some in (inboxes[:2], inboxes)
    ]
    assert [ask(page, "/readyz").code for page in pages] == [200, 503], "the third never ran"
