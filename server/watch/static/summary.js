// Where the run is, in one line of tiles, and what needs a look.
import { byId, el, place, put, say, sync } from "./dom.js";
import { duration, percent, points, short, whole } from "./format.js";

export function summaryPart() {
  return {
    draw(snapshot) {
      const { run } = snapshot;
      say(byId("h-run"), run.name);
      say(byId("run-line"), line(run));
      progress(run);
      sync(byId("tiles"), tiles(snapshot), (tile) => tile.name, makeTile, fillTile);
      notes(snapshot);
    },
  };
}

function line(run) {
  const phase = `phase ${run.phase.name}, ${whole(run.phase.batch)} × ${whole(run.phase.seq_len)} tokens a step (${run.phase.packing})`;
  const branch = run.parent ? `branched from ${run.parent} at step ${whole(run.branch_at)}, ` : "";
  return `${run.kind === "eval" ? "evaluation, " : ""}${branch}${phase}, segment ${run.segment}`;
}

function progress(run) {
  const part = (step) => (run.end ? Math.min(1, step / run.end) : 0);
  const bar = byId("progress");
  place(bar.querySelector(".done"), "--w", `${100 * part(run.confirmed)}%`);
  place(bar.querySelector(".sealed"), "--w", `${100 * part(run.seal)}%`);
  put(bar, "aria-valuenow", (100 * part(run.confirmed)).toFixed(1));
  put(bar, "aria-valuetext", `step ${whole(run.confirmed)} of ${run.end ? whole(run.end) : "no end"}, sealed to ${whole(run.seal)}`);
}

function tiles({ run, lease, domains, drift }) {
  const used = domains.filter((domain) => domain.state !== "unused");
  // What a capped domain gives up the others get: both are as they should be.
  const free = used.filter((domain) => domain.state !== "capped");
  const some = free.length < used.length;
  const apart = free.reduce((worst, domain) => {
    const off = domain.window_share - domain.window_due;
    return !(some && off > 0) && Math.abs(off) > Math.abs(worst.off) ? { off, name: domain.name } : worst;
  }, { off: 0, name: "" });
  const capped = used.filter((domain) => domain.cap).sort((a, b) => b.epochs / b.cap - a.epochs / a.cap)[0];
  const left = run.end === null || !run.steps_per_second ? null : (run.end - run.confirmed) / run.steps_per_second;
  const alarms = drift.filter((figure) => figure.alarm).length;
  const off = used.some((domain) => domain.state === "off");
  return [
    { name: "Confirmed", value: whole(run.confirmed), note: run.end ? `of ${whole(run.end)} steps, ${percent(run.confirmed / run.end, 1)}` : "steps" },
    { name: "Sealed to", value: whole(run.seal), note: `${whole(run.seal - run.confirmed)} ahead, lead ${whole(run.lead)}`, state: run.data_error || run.store_error ? "alarm" : "" },
    { name: "Tokens served", value: short(run.tokens), note: run.steps_per_second === null ? "pace not known yet" : `${short(run.steps_per_second * run.phase.batch * run.phase.seq_len)} a second` },
    { name: "Pace", value: run.steps_per_second === null ? "–" : `${run.steps_per_second.toPrecision(3)}/s`, note: left === null ? "steps a second" : `${duration(left)} to go` },
    { name: "Ranks", value: lease ? `${lease.open}/${lease.world}` : "0", note: lease ? `slowest ${whole(lease.ranks[0].behind)} behind` : "nobody trains", state: lease && lease.open < lease.world ? "warning" : "" },
    { name: "Most off target", value: apart.name ? points(apart.off) : "0.00", note: apart.name ? `points, ${apart.name}` : "points", state: off ? "warning" : "" },
    { name: "Nearest cap", value: capped ? percent(capped.epochs / capped.cap, 0) : "–", note: capped ? capped.name : "no domain has one", state: capped && capped.state !== "ok" ? "warning" : "" },
    { name: "Drift alarms", value: String(alarms), note: drift.length ? `of ${drift.length} figures` : "no figures yet", state: alarms ? "alarm" : "" },
  ];
}

function makeTile(tile) {
  return el("div", { class: "tile" }, el("dt", {}, tile.name), el("dd", { class: "value" }), el("dd", { class: "note" }));
}

function fillTile(node, tile) {
  put(node, "data-state", tile.state || "");
  say(node.querySelector(".value"), tile.value);
  say(node.querySelector(".note"), tile.note);
}

const WORDS = { alarm: "Alarm", warning: "Warning", note: "Note" };

function notes(snapshot) {
  const found = snapshot.notes;
  put(byId("look"), "data-calm", String(!found.length));
  const drift = snapshot.drift.length ? "nothing drifts" : "drift is not known yet";
  const calm = { level: "calm", text: `Nothing: shares are on target, no cap is near, ${drift}, every rank is heard.` };
  const shown = found.length ? found : [calm];
  sync(byId("notes"), shown, (note) => note.level + note.text, (note) => el("li", { "data-level": note.level },
    WORDS[note.level] ? el("strong", { class: "chip" }, WORDS[note.level]) : null, el("span", {}, note.text)), () => {});
}
