// Epochs of each domain against its cap, on one scale. Beyond four epochs repeated text is worth ever less.
import { byId, el, Fold, place, put, say, sync } from "./dom.js";
import { epochs, percent, whole } from "./format.js";

const MANY = 4;

export function epochsPart(page) {
  const fold = new Fold(byId("more-epochs"), 10, "domains", () => page.snapshot && draw(page.snapshot));

  function draw(snapshot) {
    const used = snapshot.domains.filter((domain) => domain.state !== "unused");
    const items = fold.of([...used].sort((a, b) => nearness(b) - nearness(a) || b.epochs - a.epochs));
    const scale = Math.max(0.01, ...items.map((domain) => Math.max(domain.epochs, domain.cap && domain.cap < 3 * domain.epochs + 1 ? domain.cap : 0))) * 1.08;
    const capped = used.filter((domain) => domain.cap).length;
    say(byId("epochs-line"), `${capped || "No"} domain${capped === 1 ? " has" : "s have"} a cap. The scale ends at ${epochs(scale)} epochs${scale > MANY ? "; the shaded part is beyond 4, where repeated text is worth ever less" : ""}.`);
    sync(byId("epochs").tBodies[0], items, (domain) => domain.name, makeRow, (row, domain) => fillRow(row, domain, scale));
  }
  return { draw, reset: () => (fold.open = false) };
}

const nearness = (domain) => (domain.cap ? domain.epochs / domain.cap : 0);

function makeRow(domain) {
  const bar = el("span", { class: "bullet", "aria-hidden": "true" }, el("span", { class: "zone" }), el("span", { class: "fill" }), el("span", { class: "mark" }));
  return el("tr", {}, el("th", { scope: "row", title: domain.name }, domain.name), el("td", {}, bar), el("td", { class: "number of" }));
}

function fillRow(row, domain, scale) {
  put(row, "data-state", domain.state);
  place(row.querySelector(".fill"), "--w", `${(100 * domain.epochs) / scale}%`);
  const mark = row.querySelector(".mark");
  mark.hidden = !domain.cap || domain.cap > scale;
  if (!mark.hidden) place(mark, "--x", `${(100 * domain.cap) / scale}%`);
  place(row.querySelector(".zone"), "--x", `${Math.min(100, (100 * MANY) / scale)}%`);
  say(row.querySelector(".of"), domain.cap ? `${epochs(domain.epochs)} of ${epochs(domain.cap)} (${percent(domain.epochs / domain.cap, 0)})` : `${epochs(domain.epochs)}, no cap`);
  put(row, "title", domain.cap_step === null ? domain.name : `${domain.name}: at this pace its cap comes at about step ${whole(domain.cap_step)}`);
}
