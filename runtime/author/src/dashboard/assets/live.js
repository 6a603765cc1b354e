"use strict";
// The parts of a page that change (data-live) are fetched again every few seconds. What a user opened, focused, scrolled or selected stays.

const INTERVAL = 3000;
const toggle = document.getElementById("live");
const state = document.getElementById("state");
let isLive = true;
let running = false;

function replace(part, next) {
  const selection = document.getSelection();
  const isSelected = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  if (!next || isSelected || next.innerHTML === part.innerHTML) return;
  const open = [...part.querySelectorAll("details[open]")].map((it) => it.id);
  const places = [...part.querySelectorAll(".wide, .json")].map((it) => [it.id, it.scrollLeft, it.scrollTop]);
  const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
  const fresh = document.importNode(next, true);
  for (const id of open) {
    const details = id && fresh.querySelector("#" + CSS.escape(id));
    if (details) details.open = true;
  }
  part.replaceChildren(...fresh.childNodes);
  for (const [id, left, top] of places) {
    const region = id && document.getElementById(id);
    if (region) region.scrollTo(left, top);
  }
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

// The first element with an id below the top of the window, and how far below.
function topmost() {
  const tops = [...document.querySelectorAll("main [id]")].map((it) => [it.id, it.getBoundingClientRect().top]);
  return window.scrollY > 0 ? tops.find(([, top]) => top >= 0) : undefined;
}

// What a user reads stays where it is, also when something comes above it.
function keepPlace(place) {
  const element = place && document.getElementById(place[0]);
  if (element) window.scrollBy(0, element.getBoundingClientRect().top - place[1]);
}

async function refresh() {
  if (!isLive || running || document.hidden) return;
  running = true;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const error = page.getElementById("error");
    if (error && !document.getElementById("error")) {
      state.textContent = error.querySelector(".failure").textContent;
    } else if (!error && document.getElementById("error")) {
      location.reload();
    } else {
      const place = topmost();
      for (const part of document.querySelectorAll("[data-live]")) replace(part, page.getElementById(part.id));
      keepPlace(place);
      state.textContent = "";
    }
  } catch {
    state.textContent = "metahook dashboard does not answer: does it still run?";
  } finally {
    running = false;
  }
}

toggle.hidden = false;
toggle.addEventListener("click", () => {
  isLive = !isLive;
  toggle.setAttribute("aria-pressed", String(isLive));
  refresh();
});
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, INTERVAL);
