// Who trains, and which rank is behind: the slowest first.
import { byId, el, Fold, place, say, sync, put } from "./dom.js";
import { ago, whole } from "./format.js";

export function ranksPart(page) {
  const button = el("button", { type: "button", hidden: true });
  const body = el("tbody");
  const table = el("table", { class: "ranks" }, el("caption", { class: "out" }, "Ranks, the slowest first"),
    el("thead", {}, el("tr", {}, ...[["Rank", ""], ["Step", "number"], ["Behind", "number"], ["Heard", "number"]].map(([label, kind]) => el("th", { scope: "col", class: kind }, label)))), body);
  const empty = el("p", { class: "quiet small" }, "No rank is open: nobody trains on this run now.");
  byId("ranks").append(empty, table, button);
  const fold = new Fold(button, 8, "slowest ranks", () => page.snapshot && draw(page.snapshot));

  function draw(snapshot) {
    const { lease } = snapshot;
    empty.hidden = lease !== null;
    table.hidden = lease === null;
    say(byId("ranks-line"), lease ? `job ${lease.job}, attempt ${lease.attempt}` : "");
    const ranks = fold.of(lease ? lease.ranks : []);
    const most = Math.max(1, ...ranks.map((rank) => rank.behind));
    sync(body, ranks, (rank) => rank.label, makeRow, (row, rank) => fillRow(row, rank, most, page.now()));
  }
  setInterval(() => page.snapshot && !document.hidden && draw(page.snapshot), 5000);
  return { draw };
}

function makeRow(rank) {
  return el("tr", {}, el("th", { scope: "row", title: rank.holder }, rank.label), el("td", { class: "number" }),
    el("td", { class: "number lag" }, el("span", { class: "fill", "aria-hidden": "true" }), el("span")), el("td", { class: "number" }));
}

function fillRow(row, rank, most, now) {
  const [, step, behind, heard] = row.cells;
  say(step, whole(rank.next_step));
  say(behind.lastChild, whole(rank.behind));
  place(behind.firstChild, "--w", `${(100 * rank.behind) / most}%`);
  say(heard, ago(rank.heard_us, now));
  put(row, "data-state", now - rank.heard_us > 30e6 ? "off" : "ok");
}
