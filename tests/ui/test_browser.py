"""The page in a real browser: what one sees, by keyboard, on a phone, in the dark, and without scripts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from headgate.carrier import ControlFolder
from headgate.ui import Serving, Token, Watched, create_app
from tests.browser import Browser
from tests.ui.status import applying, history, put, put_everything, reading

SECRET = "correct-horse-battery"

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
GROUND = "getComputedStyle(document.body).backgroundColor"
FAINT = """(() => {
  const parts = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const light = (colour) => parts(colour).slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    const colour = getComputedStyle(node).backgroundColor;
    return parts(colour)[3] === 0 ? ground(node.parentElement) : colour;
  };
  const faint = [];
  for (const node of document.querySelectorAll("body *")) {
    if (![...node.childNodes].some((one) => one.nodeType === Node.TEXT_NODE && one.nodeValue.trim())) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faint.push(`${node.tagName} ${node.textContent.trim().slice(0, 40)}: ${contrast.toFixed(2)}`);
  }
  return faint;
})()"""
"""Texts with less contrast than WCAG 2.2 wants (1.4.3, level AA: 4.5)."""
TOUCHING = """(() => {
  const touching = [];
  for (const frame of document.querySelectorAll(".figures div, .now, td, th")) {
    const style = getComputedStyle(frame);
    const box = frame.getBoundingClientRect();
    const range = document.createRange();
    range.selectNodeContents(frame);
    const right = Math.max(...[...range.getClientRects()].map((rect) => rect.right));
    if (right > box.right - parseFloat(style.paddingRight) - parseFloat(style.borderRightWidth) + 0.5) {
      touching.push(frame.textContent.trim().slice(0, 40));
    }
  }
  return touching;
})()"""
"""What reaches into the padding of its frame or cell, or beyond it."""
OUTSIDE = """[...document.querySelectorAll("#plots-shop .line")].filter((line) => {
  const [inner, outer] = [line.getBoundingClientRect(), line.closest("svg").getBoundingClientRect()];
  return !(inner.width > 20 && inner.height > 1 && inner.left >= outer.left - 2 && inner.right <= outer.right + 2
    && inner.top >= outer.top - 2 && inner.bottom <= outer.bottom + 2);
}).map((line) => line.outerHTML)"""
"""Lines of plots that are not seen whole."""
UNREACHABLE = """[...document.querySelectorAll("a, button, input, select, textarea, summary")].filter((one) => {
  const box = one.getBoundingClientRect();
  return one.type !== "hidden" && !one.matches(".skip")
    && !(box.left >= 0 && box.right <= document.documentElement.clientWidth && box.width > 0);
}).map((one) => one.outerHTML)"""
"""Controls that are not inside the page's width."""
FOCUSED = """(() => {
  const box = document.activeElement.getBoundingClientRect();
  const seen = box.bottom > 0 && box.top < innerHeight && box.left >= 0 && box.left < innerWidth;
  return [Math.round(box.top + scrollY), seen];
})()"""
"""The top of what has the focus, in the page, and whether it is in sight."""
DIM = """(() => {
  const light = (colour) => colour.match(/[0-9.]+/g).map(Number).slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = light(getComputedStyle(document.querySelector(".pipeline")).backgroundColor);
  return [...document.querySelectorAll(".phases rect")].map((one) => getComputedStyle(one).fill).filter((fill) => {
    const colour = light(fill);
    return (Math.max(colour, ground) + 0.05) / (Math.min(colour, ground) + 0.05) < 3;
  });
})()"""
"""Colours of phases that do not stand out from the card."""
ANSWERED = """new Promise((resolve) => {
  const answer = document.getElementById("answer");
  const look = () => answer.textContent && resolve(answer.textContent);
  new MutationObserver(look).observe(answer, {childList: true});
  look();
})"""


def test_the_page_in_a_browser(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.status._status._OLD_US", 10**12)  # however long the browser takes, the pipeline runs
    inbox = ControlFolder(str(tmp_path / "inbox"))
    put(inbox)
    app = create_app([Watched("shop", inbox)], token=Token(SECRET))
    with Serving(app, "127.0.0.1", 0) as page:
        browser.look(width=1200, height=900, dark=False)
        browser.open(page.url)
        assert browser.run("document.querySelector('h1').innerText") == "shop running"
        assert browser.run("document.querySelector('progress').position") == 3 / 8
        assert browser.run("[...document.querySelectorAll('table caption')].length") == 2
        sees_plots(browser)
        light = browser.run(GROUND)
        assert browser.run(FAINT) == []
        browser.picture(tmp_path / "light.png")

        by_keyboard(browser)
        refreshes_in_place(browser, inbox)
        sends_signals(browser, inbox)

        browser.look(width=375, height=800, dark=True)
        assert browser.run(OVERFLOW) == 0
        assert browser.run(GROUND) != light
        assert browser.run(FAINT) == []
        browser.picture(tmp_path / "dark-phone.png")

        without_scripts(browser, page.url, "shop", inbox)
    assert [event for event in browser.events if is_trouble(event)] == []


@pytest.mark.parametrize("width", [1200, 800, 375])
def test_long_figures_stay_inside_their_frames(
    width: int, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.status._status._OLD_US", 10**12)
    inbox, long = ControlFolder(str(tmp_path / "inbox")), 123_456_789_012
    doing = {
        **reading(), "rows_estimate": long, "tasks": long, "tasks_done": long // 2, "transactions": long,
        "seconds_left": 1e7,
    }  # fmt: skip
    table = {"version": long, "changes": long, "rows": long}
    put(
        inbox, activity=doing, changes_per_second=long, rows_per_second=long,
        lag={"seconds": long / 1e3, "transactions": long},
        snapshot={"tables": 1, "rows": long // 2, "rows_estimate": long, "seconds_left": 1e7},
        tables={
            "shop.orders": {"state": "live", **table},
            "a_rather_long_database_name.and_a_table_with_a_long_name_as_well": {"state": "live", **table},
            "shop.items": {
                "state": "snapshotting", "rows_read": long // 2, "rows_estimate": long, "chunks_done": long // 4,
                "chunks_estimate": long // 2, **table,
            },
        },
        recent=[
            {"batch_id": 11, "epoch": 9, "gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-90211", "committed_us": 1,
             "transactions": long, "rows": long, "changes": long, "tables": 1000, "seconds": 1e5},
        ],
    )  # fmt: skip
    with Serving(create_app([Watched("shop", inbox)]), "127.0.0.1", 0) as page:
        browser.look(width=width, height=900, dark=False)
        browser.open(page.url)
        assert "123,456,789,012" in browser.run("document.querySelector('.figures').innerText")
        assert browser.run(OVERFLOW) == 0
        assert browser.run(TOUCHING) == []
        browser.picture(tmp_path / f"long-{width}.png")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing(
    width: int, dark: bool, browser: Browser, axe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.status._status._OLD_US", 10**12)
    names = ("busy", "quiet", "new", "broken")
    inboxes = {name: ControlFolder(str(tmp_path / name)) for name in names}
    put_everything(inboxes["busy"], "busy")
    put(inboxes["quiet"], "quiet", state="idle", activity={"phase": "waiting", "since_us": 1}, recent=[], signals=[])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "status.json").write_text('{"v": 9}')
    pipelines = [Watched(name, inbox) for name, inbox in inboxes.items()]
    with Serving(create_app(pipelines, token=Token(SECRET)), "127.0.0.1", 0) as page:
        browser.look(width=width, height=900, dark=dark)
        browser.open(page.url)
        assert browser.run("document.querySelectorAll('.pipeline').length") == len(names)
        browser.picture(tmp_path / f"{width}-{dark}.png")
        assert violations(browser, axe) == []
        assert browser.run(FAINT) == []
        assert browser.run(OVERFLOW) == 0
        assert browser.run(TOUCHING) == []
        assert browser.run(UNREACHABLE) == []
        browser.run("document.querySelector('label[for=condition]').remove()")
        assert violations(browser, axe)[-1] == ["label", ["#condition"]], "it looks"
        without_scripts(browser, page.url, "busy", inboxes["busy"])
        browser.send("Emulation.setScriptExecutionDisabled", value=False)
        assert violations(browser, axe) == [], "the answer to a form"


@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_by_keyboard_alone(
    width: int, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.status._status._OLD_US", 10**12)
    inboxes = {name: ControlFolder(str(tmp_path / name)) for name in ("shop", "stock")}
    for name, inbox in inboxes.items():
        put_everything(inbox, name)
    pipelines = [Watched(name, inbox) for name, inbox in inboxes.items()]
    with Serving(create_app(pipelines, token=Token(SECRET)), "127.0.0.1", 0) as page:
        browser.look(width=width, height=900, dark=False)
        browser.open(page.url)
        places = tab_through(browser)
        assert places == sorted(places), "from above to below, as it is read"
        browser.press("Tab", shift=True)
        assert browser.run("document.activeElement.closest('footer') !== null"), "and back"

        browser.open(page.url)
        go_to(browser, ".skip")
        browser.press("Enter")
        assert browser.run("document.activeElement.id") == "content"
        go_to(browser, "#gtid-shop summary")
        browser.press("Enter")
        assert browser.run("document.getElementById('gtid-shop').open")
        browser.press("Enter")
        assert not browser.run("document.getElementById('gtid-shop').open")
        go_to(browser, "#pipeline")
        browser.press("ArrowDown")
        go_to(browser, "#tables")
        for letter in "shop.orders":
            browser.press(letter)
        browser.press("Enter")  # one pattern a line
        go_to(browser, "input[name=kind]")
        browser.press("ArrowRight")
        go_to(browser, "#token")
        for letter in SECRET:
            browser.press(letter)
        go_to(browser, "button[value=execute-snapshot]")
        browser.press("Enter")
        assert browser.run(ANSWERED).startswith("execute-snapshot is in the inbox of stock")
        assert browser.run("document.activeElement.value") == "execute-snapshot", "the focus stays where it was"
        ((_, signal),) = inboxes["stock"].signals().items()
        assert (signal["data"]["type"], signal["data"]["data-collections"]) == ("BLOCKING", ["shop\\.orders"])
        browser.press("Escape")
        assert browser.run("document.querySelectorAll('dialog, [popover], [aria-modal]').length") == 0


def test_the_phases_of_batches(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the batch under way, of the newest one, and of all in the ledger; in words, too."""
    monkeypatch.setattr("headgate.status._status._OLD_US", 10**12)
    inbox = ControlFolder(str(tmp_path / "inbox"))
    status = put_everything(inbox, "shop")
    with Serving(create_app([Watched("shop", inbox)]), "127.0.0.1", 0) as page:
        browser.look(width=1440, height=900, dark=False)
        browser.open(page.url)
        assert browser.run("[...document.querySelectorAll('.steps li')].map((one) => one.innerText)") == [
            "planning\n0.2 s", "reading\n3.3 s", "applying\n1 of 4 tables", "committing\nnot yet",
        ]  # fmt: skip
        assert browser.run("document.querySelector('.steps [aria-current=step]').dataset.phase") == "applying"
        assert browser.run("document.getElementById('done-shop').position") == 1 / 4
        legend = "[...document.querySelectorAll('.phases li')].map((one) => one.innerText)"
        assert browser.run(legend) == ["planning 0.2 s", "reading 1.2 s", "applying 0.6 s", "committing 0.1 s"]
        widths = "[...document.querySelectorAll('.phases rect')].map((one) => one.getBoundingClientRect().width)"
        planning, read, applied, committed = browser.run(widths)
        assert (read / planning, read / applied) == (pytest.approx(6, rel=0.01), pytest.approx(2, rel=0.01))
        assert committed > 2
        bars = "[...document.querySelectorAll('.ledger .bar')].map((one) => one.getAttribute('aria-label'))"
        assert browser.run(bars)[0] == "planning 0.2 s, reading 1.2 s, applying 0.6 s, committing 0.1 s"
        colours = "[...document.querySelectorAll('.phases .key')].map((one) => getComputedStyle(one).backgroundColor)"
        fills = "[...document.querySelectorAll('.phases rect')].map((one) => getComputedStyle(one).fill)"
        for dark in (False, True):
            browser.look(width=1440, height=900, dark=dark)
            seen = browser.run(colours)
            assert seen == browser.run(fills)
            assert len({*seen}) == 4
            assert browser.run(DIM) == [], "WCAG 2.2 wants 3 for what is no text (1.4.11)"
        put(inbox, **status.to_dict() | {"activity": applying(written=3)})
        browser.run("refresh()")
        assert browser.run("document.getElementById('done-shop').position") == 3 / 4
        put(inbox, **status.to_dict() | {"activity": {"phase": "waiting", "since_us": 1}})
        browser.run("refresh()")
        assert browser.run("document.querySelector('.steps')") is None


def violations(browser: Browser, axe: str) -> list[list[Any]]:
    """What axe-core finds in the page: each rule, with the selectors of its nodes."""
    browser.run(f"{axe}; 0")
    rules: list[list[Any]] = browser.run(
        "axe.run().then((found) => found.violations.map((one) => [one.id, one.nodes.map((node) => node.target[0])]))"
    )
    return rules


def tab_through(browser: Browser) -> list[float]:
    """The top of everything that Tab reaches, in order; each is seen to have the focus, and is in sight."""
    tops: list[float] = []
    while True:
        browser.press("Tab")
        if browser.run("document.activeElement === document.body"):
            return tops
        assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        top, sees = browser.run(FOCUSED)
        assert sees, browser.run("document.activeElement.outerHTML")
        tops.append(top)
        assert len(tops) < 60


def go_to(browser: Browser, selector: str) -> None:
    """Press Tab until something has the focus."""
    for _ in range(60):
        browser.press("Tab")
        if browser.run(f"document.activeElement.matches({selector!r})"):
            return
    raise AssertionError(f"Tab does not reach {selector}")


def is_trouble(event: dict[str, Any]) -> bool:
    """An error of a script, or something that the security policy refused; the wrong token's 401 is none."""
    if event.get("method") == "Log.entryAdded":
        entry = event["params"]["entry"]
        return entry["level"] in ("error", "warning") and entry["source"] != "network"
    return event.get("method") == "Runtime.exceptionThrown"


def by_keyboard(browser: Browser) -> None:
    """Everything can be reached with Tab, each thing is seen to have the focus, and the skip link comes first."""
    reached: list[str] = []
    while not reached or reached[-1] != "BODY":
        browser.press("Tab")
        name = "document.activeElement.id || document.activeElement.value || document.activeElement.className"
        tag, label = browser.run("document.activeElement.tagName"), browser.run(name)
        reached.append(label if label and tag != "BODY" else tag)
        if tag != "BODY":
            assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid", reached
        assert len(reached) < 40, reached
    assert reached[0] == "skip"
    buttons = ["execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot"]
    assert [name for name in reached if name in buttons] == buttons
    assert {"SUMMARY", "tables-shop", "batches-shop", "tables", "condition", "token"} <= set(reached)


def sees_plots(browser: Browser) -> None:
    """Each has a name and words for who does not see it, and its line is inside and of a colour that stands out."""
    nodes = browser.send("Accessibility.getFullAXTree")["nodes"]
    names = [node["name"]["value"] for node in nodes if node["role"]["value"] in ("image", "img")]
    assert [text.partition(" The upper edge")[0] for text in names] == [
        "lag, the last ten minutes Now 1.5 s; at most 12 s.",
        "changes per second, the last ten minutes Now 41; at most 101.",
    ]
    assert browser.run(OUTSIDE) == []
    assert browser.run("document.querySelectorAll('#plots-shop .line').length") == 4, "two lines, each with a gap"


def refreshes_in_place(browser: Browser, inbox: ControlFolder) -> None:
    """New figures come without a reload; the focus and what was opened stay, and so does what was typed."""
    browser.run("document.querySelector('details').open = true")
    browser.run("document.querySelector('summary').focus()")
    browser.run("window.before = [document.activeElement, document.querySelector('h1')]")
    browser.run("document.getElementById('tables').value = 'half a regular'")
    browser.run("window.plot = document.querySelector('#plots-shop figure')")
    put(inbox, activity=reading(), lag={})
    browser.run("refresh()")
    now = browser.run("document.querySelector('.now p').innerText")
    assert now.startswith("Now: reading shop.items (chunks 4–5 of 8): about 500,000 rows, changes of 3 transactions, ")  # noqa: RUF001
    assert now.endswith("about 7 s left")
    assert browser.run("document.getElementById('done-shop').position") == 1 / 4
    assert browser.run("document.querySelector('.figures dd').innerText") == "not known yet"
    assert "750,000 of about 2,000,000 rows (37 %), 3 of 8 chunks" in browser.run("document.body.innerText")
    longer = history(time.time_ns() // 1000)
    longer["lag_seconds"][7] = 31.0
    tables = {"shop.new": {"state": "stale", "reason": "<i>ALTER</i>"}}
    status = put(inbox, state="idle", history=longer, warnings=[], tables=tables)
    browser.run("refresh()")
    assert browser.run("document.querySelector('.now')") is None
    assert browser.run("window.plot.isConnected && window.plot.innerText").startswith("lag\n1.5 s\nat most 31 s")
    assert browser.run("document.querySelector('h1').innerText") == "shop idle"
    assert browser.run("document.querySelector('tbody').innerText").split("\t")[:3] == [
        "shop.new", "stale", "<i>ALTER</i>",
    ]  # fmt: skip
    assert browser.run("document.querySelectorAll('.warnings li').length") == 0
    assert browser.run("document.activeElement === before[0] && document.querySelector('h1') === before[1]")
    assert browser.run("document.querySelector('details').open")
    assert browser.run("document.getElementById('tables').value") == "half a regular"
    put(inbox, **status.to_dict() | {"warnings": [{"at_us": 1, "level": "error", "text": "lost"}]})
    browser.run("refresh()")
    assert browser.run("document.querySelector('.warnings li').innerText").endswith("lost")
    assert browser.run("document.activeElement === before[0]")


def sends_signals(browser: Browser, inbox: ControlFolder) -> None:
    """By keyboard: the answer is told in the page, which stays."""
    browser.run("document.getElementById('tables').value = 'shop.orders'")
    for token, message in (("wrong-wrong-wrong", "Not taken: the token"), (SECRET, "execute-snapshot is in the inbox")):
        browser.run(f"document.getElementById('token').value = '{token}'")
        browser.run("document.getElementById('answer').textContent = ''")
        browser.run("document.querySelector('button[value=execute-snapshot]').focus()")
        browser.press("Enter")
        assert browser.run(ANSWERED).startswith(message)
    ((name, signal),) = inbox.signals().items()
    assert (signal["type"], signal["data"]["data-collections"]) == ("execute-snapshot", ["shop\\.orders"])
    assert SECRET not in browser.run("document.documentElement.outerHTML + location.href")
    inbox.remove_signal(name)


def without_scripts(browser: Browser, url: str, name: str, inbox: ControlFolder) -> None:
    """The page reloads itself then, and the form is answered by a page."""
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(url)
    assert browser.run("document.querySelector('meta[http-equiv=refresh]').content") == "10"
    browser.run(f"document.getElementById('token').value = '{SECRET}'")
    browser.run("document.querySelector('button[value=pause-snapshot]').focus()")
    seen = len(browser.events)
    browser.press("Enter")
    browser.until(lambda event: event.get("method") == "Page.loadEventFired", seen)
    assert f"pause-snapshot is in the inbox of {name} as" in browser.run("document.body.innerText")
    assert len(inbox.signals()) == 1
