// The log: who changed what, why, and from which step it holds. Newest first.
import * as api from "./api.js";
import { byId, el, put, say, sync } from "./dom.js";
import { ago, percent, when, whole } from "./format.js";

export function eventsPart(page) {
  let older = [];
  const button = byId("more-events");
  button.addEventListener("click", async () => {
    const shown = [...(page.snapshot?.events ?? []), ...older];
    button.disabled = true;
    try {
      const { events } = await api.log(page.run, shown.at(-1).sequence);
      older = [...older, ...events];
      draw(page.snapshot);
    } finally {
      button.disabled = false;
    }
  });

  function draw(snapshot) {
    const newest = snapshot.events;
    const events = [...newest, ...older.filter((event) => event.sequence < newest.at(-1).sequence)];
    const count = snapshot.event_count;
    say(byId("events-line"), count ? `${whole(count)} event${count === 1 ? "" : "s"}` : "");
    button.hidden = !events.length || events.at(-1).sequence <= 1;
    const shown = events.length ? events : [{ sequence: 0 }];
    sync(byId("events"), shown, (event) => event.sequence, makeItem, (item, event) => fillItem(item, event, page.now()));
  }
  return { draw, reset: () => (older = []) };
}

function makeItem(event) {
  if (!event.sequence) return el("li", { class: "quiet small" }, "No changes: the weights are those of the run's spec.");
  const changes = event.changes.map(([name, before, after]) =>
    el("li", {}, el("span", { class: "name" }, name), el("span", { class: "number" }, `${percent(before)} → ${percent(after)}`)));
  return el("li", { class: "event" },
    el("p", { class: "what" }, el("span", { class: "chip" }), " ", el("strong", {}, `#${event.sequence} ${event.kind}`), ` ${event.what}`),
    changes.length ? el("ul", { class: "changes" }, ...changes) : null,
    el("p", { class: "why" }, event.reason || "no reason given"),
    el("p", { class: "quiet small" }, event.author || "nobody named", " · ", el("time", { dateTime: new Date(event.time_us / 1000).toISOString(), title: when(event.time_us) })));
}

function fillItem(item, event, now) {
  if (!event.sequence) return;
  const state = event.cancelled ? "taken back" : event.holds ? "holds" : "scheduled";
  put(item, "data-state", state);
  const until = event.until_step === null ? "" : ` to ${whole(event.until_step - 1)}`;
  say(item.querySelector(".chip"), `${state === "holds" ? "since" : state === "scheduled" ? "scheduled, from" : "taken back, was from"} step ${whole(event.from_step)}${until}`);
  say(item.querySelector("time"), ago(event.time_us, now));
}
