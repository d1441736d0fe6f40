// One run at a time, as its snapshots come: each part of the page draws what it needs of the newest one.
import * as api from "./api.js";
import { batchPart } from "./batch.js";
import { chartPart } from "./chart.js";
import { byId, el, put, say } from "./dom.js";
import { driftPart } from "./drift.js";
import { epochsPart } from "./epochs.js";
import { eventsPart } from "./events.js";
import { mixturePart } from "./mixture.js";
import { ranksPart } from "./ranks.js";
import { summaryPart } from "./summary.js";
import { themeButton } from "./themes.js";

const page = { run: null, snapshot: null, skew: 0, chosen: [], listeners: [] };
// The server's clock, so that "ago" is right on a machine whose clock is not.
page.now = () => Date.now() * 1000 + page.skew;

const chart = chartPart(page);
const mixture = mixturePart(page, () => {
  chart.draw(page.snapshot);
  mixture.draw(page.snapshot);
});
page.choose = (names) => {
  page.chosen = names;
  if (!page.snapshot) return;
  mixture.draw(page.snapshot);
  chart.draw(page.snapshot);
};
const batch = batchPart(page);
const parts = [summaryPart(page), mixture, chart, epochsPart(page), driftPart(page), ranksPart(page), eventsPart(page), batch];

let stream = null;
let waiting = null;

function show(snapshot) {
  const first = page.snapshot === null;
  page.snapshot = snapshot;
  page.skew = snapshot.now_us - Date.now() * 1000;
  if (first) page.chosen = startingChoice(snapshot);
  // One drawing a frame, however fast snapshots come, and none while nobody looks.
  if (waiting === null) {
    waiting = requestAnimationFrame(() => {
      waiting = null;
      const begun = performance.now();
      for (const part of parts) part.draw(page.snapshot);
      performance.measure("headrace-draw", { start: begun });
    });
  }
}

// A few that are urgent, then the largest.
function startingChoice({ domains }) {
  const urgent = domains.filter((domain) => ["quarantine", "drift", "off", "near cap"].includes(domain.state)).slice(0, 3);
  const large = domains.filter((domain) => !urgent.includes(domain) && domain.state === "ok").sort((a, b) => b.target - a.target);
  const chosen = [...urgent, ...large].slice(0, 6);
  return (chosen.length ? chosen : domains.slice(0, 6)).map((domain) => domain.name);
}

function link(state, text) {
  put(byId("link"), "data-state", state);
  say(byId("link-text"), text);
}

function open(run) {
  if (stream) stream.close();
  Object.assign(page, { run, snapshot: null, chosen: [] });
  for (const part of parts) part.reset?.();
  document.title = `${run} · Headrace`;
  link("wait", "Connecting");
  stream = new api.Stream(run, show, link);
  batch.load(null);
}

function runInAddress() {
  return new URLSearchParams(location.search).get("run");
}

async function start() {
  themeButton(() => page.snapshot && chart.redraw());
  const known = await api.runs();
  say(byId("version"), `Headrace ${known.version}`);
  byId("logout").hidden = !known.logged_in;
  const select = byId("run");
  select.replaceChildren(...known.runs.map((name) => el("option", { value: name }, name)));
  if (!known.runs.length) {
    link("wait", "No runs");
    fail("This server has no run yet: `headrace run create RUN.toml` makes one.");
    return;
  }
  const wanted = runInAddress();
  const first = known.runs.find((name) => !(name in known.refused)) ?? known.runs[0];
  select.value = known.runs.includes(wanted) ? wanted : first;
  select.addEventListener("change", () => {
    history.pushState(null, "", `?run=${encodeURIComponent(select.value)}`);
    open(select.value);
  });
  addEventListener("popstate", () => {
    select.value = runInAddress() ?? first;
    open(select.value);
  });
  open(select.value);
}

function fail(message) {
  byId("failure").hidden = false;
  say(byId("failure"), message);
}

start().catch((error) => {
  if (!(error instanceof api.Refused)) fail(error.message);
});
