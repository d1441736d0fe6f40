// How far what was served is from its reference and from the interval before, beside the noise of a sample of its size.
import { byId, el, Fold, place, put, say, sync } from "./dom.js";
import { whole } from "./format.js";

const HEADS = [["Domain", ""], ["Feature", ""], ["× floor", "number"], ["JSD, bits", "number"], ["Floor", "number minor"], ["Sampled", "number minor"]];

export function driftPart(page) {
  byId("drift").tHead.rows[0].append(...HEADS.map(([label, kind]) => el("th", { scope: "col", class: kind }, label)));
  const fold = new Fold(byId("more-drift"), 8, "figures", () => page.snapshot && draw(page.snapshot));

  function draw(snapshot) {
    const figures = [...snapshot.drift].sort((a, b) => b.alarm - a.alarm || b.value_floor_ratio - a.value_floor_ratio);
    const alarms = figures.filter((figure) => figure.alarm).length;
    byId("drift-scroll").hidden = !figures.length;
    say(byId("drift-line"), figures.length
      ? `${alarms || "No"} alarm${alarms === 1 ? "" : "s"} in ${figures.length} figures. A sample of the same text stays below its floor 99 times in 100.`
      : "No drift figures yet: the first come with the first whole interval of confirmed steps.");
    sync(byId("drift").tBodies[0], fold.of(figures), (figure) => `${figure.domain}/${figure.feature}/${figure.against}`, makeRow, fillRow);
  }
  return { draw, reset: () => (fold.open = false) };
}

const small = (value) => (value === 0 ? "0" : value >= 0.001 ? value.toFixed(4) : value.toExponential(1));

function makeRow(figure) {
  const bar = el("span", { class: "bullet thin", "aria-hidden": "true" }, el("span", { class: "fill" }), el("span", { class: "mark" }));
  return el("tr", {}, el("th", { scope: "row", title: figure.domain }, figure.domain), el("td", {}, `${figure.feature.replaceAll("_", " ")}`, el("span", { class: "quiet" }, ` · ${figure.against}`)),
    el("td", { class: "number" }, el("span"), bar), el("td", { class: "number" }), el("td", { class: "number minor" }), el("td", { class: "number minor" }));
}

function fillRow(row, figure) {
  const [, , ratio, jsd, floor, sampled] = row.cells;
  put(row, "data-state", figure.alarm ? "drift" : "ok");
  say(ratio.firstChild, `${figure.value_floor_ratio.toFixed(2)}${figure.alarm ? " alarm" : ""}`);
  place(row.querySelector(".fill"), "--w", `${Math.min(100, 25 * figure.value_floor_ratio)}%`);
  place(row.querySelector(".mark"), "--x", "25%");
  say(jsd, small(figure.jsd));
  say(floor, small(figure.floor));
  say(sampled, whole(figure.samples));
  put(row, "title", `steps ${whole(figure.from_step)} to ${whole(figure.to_step - 1)}, PSI ${figure.psi === null ? "–" : small(figure.psi)}`);
}
