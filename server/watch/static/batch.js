// A step slot by slot, and the text of one row with the edges of its tokens and documents.
import * as api from "./api.js";
import { byId, el, put, say } from "./dom.js";
import { percent, whole } from "./format.js";

const MOST_SLOTS = 512;
const FIRST_TOKENS = 384;
const MOST_TOKENS = 2048;

export function batchPart(page) {
  const state = { step: null, slots: null, slot: null, asked: 0 };

  async function load(step) {
    const asked = ++state.asked;
    say(byId("batch-line"), "Reading the step …");
    try {
      const found = await api.batch(page.run, step);
      if (asked !== state.asked) return;
      Object.assign(state, { step: found.step, slots: found, slot: null });
      byId("step").value = found.step;
      drawSlots(found);
      if (found.batch) await pick(0, false);
    } catch (error) {
      if (asked === state.asked && !(error instanceof api.Refused)) say(byId("batch-line"), error.message);
    }
  }

  async function pick(slot, focus = true, tokens = FIRST_TOKENS) {
    state.slot = slot;
    for (const cell of byId("slots").children) {
      const here = Number(cell.dataset.slot) === slot;
      put(cell, "aria-selected", String(here));
      cell.tabIndex = here ? 0 : -1;
      if (here && focus) cell.focus();
    }
    const [run, step] = [page.run, state.step];
    try {
      const row = await api.row(run, step, slot, tokens);
      if (state.slot === slot && state.step === step && page.run === run) drawRow(row, tokens);
    } catch (error) {
      if (!(error instanceof api.Refused)) say(byId("batch-line"), error.message);
    }
  }

  function drawSlots(found) {
    const counts = new Map();
    found.domains.forEach((place) => counts.set(place, (counts.get(place) ?? 0) + 1));
    const order = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
    const shade = new Map(order.map(([place], number) => [place, number]));
    say(byId("batch-line"), `Step ${whole(found.step)}, ${found.sealed ? "sealed" : "planned and not sealed yet: it may still change"}. Phase ${found.phase}, segment ${found.segment}, ${whole(found.batch)} rows of ${whole(found.seq_len)} tokens${found.batch > MOST_SLOTS ? `; the first ${MOST_SLOTS} are shown` : ""}.`);
    byId("composition").replaceChildren(...order.slice(0, 12).map(([place, count], number) =>
      el("li", { "data-shade": String(number) }, el("span", { class: "swatch", "aria-hidden": "true" }), `${found.names[place]} `, el("span", { class: "quiet" }, `${count} (${percent(count / found.batch, 1)})`))),
      order.length > 12 ? el("li", { class: "quiet" }, `and ${order.length - 12} more domains`) : "");
    byId("slots").replaceChildren(...found.domains.slice(0, MOST_SLOTS).map((place, slot) => {
      const cell = el("button", { type: "button", role: "option", tabIndex: slot ? -1 : 0, "aria-selected": "false", "aria-label": `Slot ${slot}, ${found.names[place]}`, title: `slot ${slot}: ${found.names[place]}` });
      cell.dataset.slot = slot;
      cell.dataset.shade = shade.get(place) < 12 ? shade.get(place) : "rest";
      return cell;
    }));
    byId("row").hidden = true;
  }

  function drawRow(row, tokens) {
    byId("row").hidden = false;
    say(byId("row-title"), `Slot ${row.slot}: ${row.domain}`);
    const facts = [["Pass", row.pass], ["Place in the pass", whole(row.index)], ["Window", whole(row.window)], ["Real ids", `${whole(row.real)} of ${whole(row.tokens + 1)}`], ["Documents", row.documents], ["Digest", row.digest.slice(0, 12)]];
    byId("row-facts").replaceChildren(...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value)))));
    byId("text").replaceChildren(...pieces(row.pieces));
    const shown = row.pieces.reduce((sum, piece) => sum + piece[1], 0);
    byId("more-text").hidden = shown >= row.real || tokens >= MOST_TOKENS;
    byId("sources").tBodies[0].replaceChildren(...row.sources.map((source) =>
      el("tr", {}, el("td", { class: "file" }, source.file), el("td", { class: "number" }, whole(source.row)), el("td", { class: "number" }, `${whole(source.begin)} to ${whole(source.end)}`))));
  }

  const slots = byId("slots");
  slots.addEventListener("click", (event) => {
    const cell = event.target.closest("button");
    if (cell) pick(Number(cell.dataset.slot));
  });
  slots.addEventListener("keydown", (event) => {
    const last = slots.children.length - 1;
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: perLine(slots), ArrowUp: -perLine(slots), Home: -last, End: last };
    if (!(event.key in moves) || state.slot === null) return;
    event.preventDefault();
    pick(Math.min(last, Math.max(0, state.slot + moves[event.key])));
  });
  byId("step-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = byId("step").value;
    load(text === "" ? null : Math.max(0, Math.trunc(Number(text))));
  });
  byId("step-back").addEventListener("click", () => state.step > 0 && load(state.step - 1));
  byId("step-on").addEventListener("click", () => state.step !== null && load(state.step + 1));
  byId("step-now").addEventListener("click", () => load(null));
  byId("more-text").addEventListener("click", () => pick(state.slot, false, MOST_TOKENS));
  byId("edges").addEventListener("change", (event) => byId("text").classList.toggle("edges", event.target.checked));
  return { draw: () => {}, load, reset: () => byId("slots").replaceChildren() };
}

function perLine(slots) {
  const [first] = slots.children;
  if (!first) return 1;
  const line = [...slots.children].findIndex((cell) => cell.offsetTop > first.offsetTop);
  return line < 0 ? slots.children.length : line;
}

// Tokens alternate in shade; a document begins at a rule.
function* pieces(found) {
  let odd = false;
  for (const [text, , begins] of found) {
    if (begins) yield el("span", { class: "document", role: "separator", "aria-label": "A document begins" }, "document");
    odd = !odd;
    yield el("span", { class: odd ? "token" : "token even", dir: "auto" }, text.replaceAll("\n", "↵\n"));
  }
}
