"use strict";
// Keeps the page fresh: fetches the rendered content and changes only what differs, so that focus, selection, scroll
// and opened details stay. Without this script the page reloads itself.

const EVERY_MS = 3000;
const content = document.getElementById("content");
const connection = document.getElementById("connection");

// Nodes are the same if they are of one kind and have the same id, or none. Parts that come and go have ids.
function isSame(old, fresh) {
  return old.nodeName === fresh.nodeName && (old.id || "") === (fresh.id || "");
}

function change(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const {name} of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const {name, value} of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  changeChildren(old, fresh);
}

function changeChildren(old, fresh) {
  const rest = parts(old);
  for (const next of parts(fresh)) {
    const at = rest.findIndex((node) => isSame(node, next));
    if (at < 0) {
      old.insertBefore(next, rest[0] ?? null);
      continue;
    }
    for (const gone of rest.splice(0, at)) gone.remove();
    change(rest.shift(), next);
  }
  for (const gone of rest) gone.remove();
}

// Without the space between elements: it would be taken for that of another place, and what lies between for gone.
function parts(node) {
  return [...node.childNodes].filter((one) => one.nodeType !== Node.TEXT_NODE || one.nodeValue.trim());
}

let asked = 0;
let shown = 0;

async function refresh() {
  const number = ++asked;
  try {
    const answer = await fetch("content" + location.search, {cache: "no-store"});
    if (!answer.ok) throw new Error(`the page's server answers ${answer.status}`);
    const fresh = document.createElement("template");
    fresh.innerHTML = await answer.text();
    if (number < shown) return; // a later answer overtook this one
    shown = number;
    changeChildren(content, fresh.content);
    connection.textContent = "";
  } catch (error) {
    const text = error instanceof TypeError ? "the page's server cannot be reached" : error.message;
    connection.textContent = `Not up to date: ${text}`;
  }
}

async function loop() {
  if (!document.hidden) await refresh();
  setTimeout(loop, EVERY_MS);
}

setTimeout(loop, EVERY_MS);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });

const form = document.getElementById("signals");
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const output = document.getElementById("answer");
  const body = new URLSearchParams(new FormData(form, event.submitter));
  output.textContent = "";
  let refused = true;
  let text;
  try {
    const answer = await fetch(form.action, {method: "POST", body, headers: {accept: "application/json"}});
    const told = await answer.json();
    refused = answer.status !== 202;
    text = refused ? `Not taken: ${told.problem}` : `${told.type} is in the inbox of ${told.pipeline} as ${told.id}.`;
  } catch (error) {
    text = "Not taken: the page's server cannot be reached";
  }
  output.className = refused ? "refused" : "";
  output.textContent = text;
});
