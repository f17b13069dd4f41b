"""The page in a real browser: what one sees, by keyboard, on a phone, in the dark, and without scripts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from headgate.carrier import ControlFolder
from headgate.ui import Serving, Token, Watched, create_app
from tests.browser import Browser
from tests.ui.status import history, put, reading

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

        without_scripts(browser, page.url, inbox)
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
    now = browser.run("document.querySelector('.now').innerText")
    assert now.startswith("Now: reading shop.items (chunks 4–5 of 8): about 500,000 rows, changes of 3 transactions, ")  # noqa: RUF001
    assert now.endswith("about 7 s left")
    assert browser.run("document.getElementById('reading-shop').position") == 1 / 4
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


def without_scripts(browser: Browser, url: str, inbox: ControlFolder) -> None:
    """The page reloads itself then, and the form is answered by a page."""
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(url)
    assert browser.run("document.querySelector('meta[http-equiv=refresh]').content") == "10"
    browser.run(f"document.getElementById('token').value = '{SECRET}'")
    browser.run("document.querySelector('button[value=pause-snapshot]').focus()")
    seen = len(browser.events)
    browser.press("Enter")
    browser.until(lambda event: event.get("method") == "Page.loadEventFired", seen)
    assert "pause-snapshot is in the inbox of shop as" in browser.run("document.body.innerText")
    assert len(inbox.signals()) == 1
