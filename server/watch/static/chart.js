// The mixture over steps: realized lines and dashed targets of the domains that are ticked, with a mark where a change
// took hold. Read by mouse, by arrow keys, or as a table.
import * as api from "./api.js";
import { byId, color, el, put, say, sync } from "./dom.js";
import { epochs, percent, points, whole } from "./format.js";

const EVERY = 5000;
const HEIGHT = 300;
const MODES = {
  share: { what: "Share of the tokens", realized: "share", target: "target", format: (v) => percent(v), unit: 100 },
  so_far: { what: "Share of all tokens since the start", realized: "share_so_far", target: "target_so_far", format: (v) => percent(v), unit: 100 },
  off: { what: "Realized less target since the start, points", format: (v) => points(v), unit: 100 },
  epochs: { what: "Epochs", realized: "epochs", format: epochs, unit: 1 },
};

export function chartPart(page) {
  const box = byId("chart");
  const state = { plot: null, key: "", at: 0, confirmed: -1, history: null, mode: "share", busy: false, events: [] };

  for (const radio of byId("modes").querySelectorAll("input")) {
    radio.checked = radio.value === state.mode;
    radio.addEventListener("change", () => {
      state.mode = radio.value;
      redraw();
    });
  }
  box.addEventListener("keydown", (event) => move(state, event));
  byId("chart-table").addEventListener("toggle", () => table());
  new ResizeObserver(() => state.plot?.setSize({ width: box.clientWidth, height: HEIGHT })).observe(box);

  async function draw(snapshot) {
    state.events = snapshot.events.filter((event) => !event.cancelled && event.kind !== "cancel").map((event) => event.from_step);
    legend(snapshot);
    const key = `${page.run}\n${page.chosen.join("\n")}`;
    const due = snapshot.run.confirmed !== state.confirmed && performance.now() - state.at > EVERY;
    if (state.busy || (key === state.key && !due)) return;
    Object.assign(state, { key, at: performance.now(), confirmed: snapshot.run.confirmed, busy: true });
    try {
      const found = page.chosen.length ? await api.history(page.run, page.chosen) : { steps: [], domains: {} };
      if (key === `${page.run}\n${page.chosen.join("\n")}`) {
        state.history = found;
        redraw();
      }
    } catch (error) {
      if (!(error instanceof api.Refused)) say(byId("chart-help"), error.message);
    } finally {
      state.busy = false;
      if (key !== `${page.run}\n${page.chosen.join("\n")}`) draw(page.snapshot);
    }
  }

  function redraw() {
    const { history, mode } = state;
    state.plot?.destroy();
    state.plot = null;
    box.replaceChildren();
    const enough = history && history.steps.length > 1 && page.chosen.length;
    say(byId("chart-help"), enough ? help(mode) : page.chosen.length ? "The plot begins with the second confirmed step." : "Tick a domain in the table to plot it.");
    put(box, "data-empty", String(!enough));
    say(byId("readout"), "");
    if (!enough) return;
    const lines = series(page.chosen.filter((name) => name in history.domains), history, mode);
    state.plot = new uPlot(options(box, lines, mode, state), [history.steps, ...lines.map((line) => line.values)], box);
    put(box, "aria-label", summary(lines, history, mode));
    table();
  }

  function table() {
    const region = byId("chart-table").querySelector(".scroll");
    if (!byId("chart-table").open || !state.history) return;
    const { steps } = state.history;
    const lines = series(page.chosen.filter((name) => name in state.history.domains), state.history, state.mode);
    const picked = sample(steps.length, 25);
    const head = el("tr", {}, el("th", { scope: "col" }, "Up to step"), ...lines.map((line) => el("th", { scope: "col", class: "number" }, line.label)));
    const rows = picked.map((at) => el("tr", {}, el("th", { scope: "row", class: "number" }, whole(steps[at])), ...lines.map((line) => el("td", { class: "number" }, text(line.values[at], state.mode)))));
    region.replaceChildren(el("table", {}, el("caption", { class: "out" }, MODES[state.mode].what), el("thead", {}, head), el("tbody", {}, ...rows)));
  }

  function legend(snapshot) {
    const known = new Map(snapshot.domains.map((domain) => [domain.name, domain]));
    sync(byId("legend"), page.chosen.filter((name) => known.has(name)), (name) => name, (name) =>
      el("li", {}, el("span", { class: "swatch", "aria-hidden": "true" }), el("span", {}, name), el("span", { class: "number quiet" }),
        el("button", { type: "button", class: "plain", "aria-label": `Take ${name} out of the plot`, onclick: () => page.choose(page.chosen.filter((one) => one !== name)) }, "×")),
    (item, name) => {
      put(item, "data-color", String(page.chosen.indexOf(name)));
      say(item.querySelector(".number"), percent(known.get(name).window_share));
    });
  }

  return {
    draw,
    redraw,
    reset() {
      Object.assign(state, { key: "", history: null, confirmed: -1 });
      redraw();
    },
  };
}

const help = (mode) => `${MODES[mode].what}. ${mode === "epochs" || mode === "off" ? "" : "Solid: realized; dashed: target. "}Drag to zoom, double-click to see all; arrow keys read the values.`;

// Lines for uPlot: a realized one for each domain, and its target where there is one.
function series(names, history, mode) {
  const { realized, target } = MODES[mode];
  return names.flatMap((name, place) => {
    const found = history.domains[name];
    if (mode === "off") {
      return [{ label: name, place, values: found.share_so_far.map((share, at) => (share === null ? null : share - found.target_so_far[at])) }];
    }
    const line = { label: name, place, values: found[realized] };
    return target ? [line, { label: `${name} target`, place, dashed: true, values: found[target] }] : [line];
  });
}

function text(value, mode) {
  return value === null || value === undefined ? "–" : MODES[mode].format(value);
}

const sample = (count, most) => [...new Set(Array.from({ length: Math.min(count, most) }, (_, at) => Math.round(((at + 1) * count) / Math.min(count, most)) - 1))];

function summary(lines, history, mode) {
  const last = lines.filter((line) => !line.dashed).map((line) => `${line.label} ${text(line.values.at(-1), mode)}`);
  return `${MODES[mode].what} up to step ${whole(history.steps.at(-1))}: ${last.join(", ")}. Arrow keys read the values.`;
}

function options(box, lines, mode, state) {
  const [ink, grid, mark] = ["--quiet", "--line", "--mark"].map(color);
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui, sans-serif" };
  return {
    width: box.clientWidth,
    height: HEIGHT,
    padding: [10, 36, 0, 0],
    legend: { show: false },
    cursor: { points: { size: 6 }, drag: { x: true, y: false } },
    scales: { x: { time: false }, y: { range: (plot, low, high) => (mode === "off" ? settled(plot) : [Math.min(0, low), high * 1.04 || 1]) } },
    axes: [
      { ...axis, values: (_, ticks) => ticks.map(whole) },
      { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => (mode === "epochs" ? String(+tick.toFixed(3)) : `${+(100 * tick).toFixed(3)}${mode === "off" ? "" : " %"}`)) },
    ],
    series: [{}, ...lines.map((line) => ({
      label: line.label,
      stroke: color(`--s${line.place}`),
      width: line.dashed ? 1.5 : 2,
      dash: line.dashed ? [5, 4] : undefined,
      paths: line.dashed && mode === "share" ? uPlot.paths.stepped({ align: -1 }) : undefined,
      points: { show: false },
    }))],
    hooks: {
      draw: [(plot) => marks(plot, state.events, mark)],
      setCursor: [(plot) => readout(plot, lines, mode)],
    },
  };
}

// The first few steps of a run are far from any target; what comes later decides on the scale.
function settled(plot) {
  const begin = Math.floor(0.03 * plot.data[0].length);
  const most = Math.max(1e-5, ...plot.data.slice(1).flatMap((values) => values.slice(begin).map((value) => Math.abs(value ?? 0))));
  return [-1.1 * most, 1.1 * most];
}

// A thin line where an event took hold.
function marks(plot, steps, stroke) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = stroke;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const step of steps) {
    if (step < plot.scales.x.min || step > plot.scales.x.max) continue;
    const x = Math.round(plot.valToPos(step, "x", true)) + 0.5;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function readout(plot, lines, mode) {
  const at = plot.cursor.idx;
  if (at === null || at === undefined) {
    say(byId("readout"), "");
    return;
  }
  const words = lines.filter((line) => !line.dashed).map((line) => {
    const target = lines.find((other) => other.dashed && other.place === line.place);
    return `${line.label} ${text(line.values[at], mode)}${target ? ` (${text(target.values[at], mode)})` : ""}`;
  });
  say(byId("readout"), `Step ${whole(plot.data[0][at])}: ${words.join(", ")}`);
}

function move(state, event) {
  const { plot } = state;
  if (!plot) return;
  const last = plot.data[0].length - 1;
  const jump = Math.max(1, Math.round(last / 20));
  const at = plot.cursor.idx ?? last;
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - jump, PageDown: at + jump, Home: 0, End: last }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const held = Math.min(last, Math.max(0, to));
  plot.setCursor({ left: plot.valToPos(plot.data[0][held], "x"), top: plot.over.clientHeight / 2 });
  byId("readout").setAttribute("aria-live", "polite");
}
