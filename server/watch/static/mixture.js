// The domains: target beside realized, how far off, epochs, state. The most urgent first, or as a column sorts them.
import { byId, el, Fold, place, put, say, sync } from "./dom.js";
import { epochs, percent, points, short, whole } from "./format.js";

export const MOST_CHOSEN = 8;
const COLUMNS = [
  { key: "name", label: "Domain", by: (d) => d.name },
  { key: "target", label: "Target", by: (d) => -d.target, number: true },
  { key: "share", label: "Realized", by: (d) => -d.window_share, number: true },
  { key: "bar", label: "Realized beside target", bar: true },
  { key: "off", label: "Off, points", by: (d) => -Math.abs(d.window_share - d.window_due), number: true, minor: true },
  { key: "epochs", label: "Epochs", by: (d) => -d.epochs, number: true, extra: "epochs" },
  { key: "tokens", label: "Tokens", by: (d) => -d.tokens, number: true, minor: true },
  { key: "state", label: "State", by: (d) => -d.urgency },
];

export function mixturePart(page, redraw) {
  const table = byId("mixture");
  let sort = null;
  const fold = new Fold(byId("more-domains"), 20, "domains", redraw);
  byId("find").addEventListener("input", redraw);
  heads(table, (key) => {
    sort = sort === key ? null : key;
    redraw();
  });

  return {
    reset: () => {
      byId("find").value = "";
      fold.open = false;
    },
    draw(snapshot) {
      const { run } = snapshot;
      const most = Math.max(1e-9, ...snapshot.domains.map((domain) => Math.max(domain.window_share, domain.window_due, domain.target)));
      const found = matching(snapshot.domains, byId("find").value);
      const shown = fold.of(sorted(found, sort));
      say(byId("mixture-line"), text(run, snapshot.domains.length, found.length));
      for (const head of table.tHead.rows[0].cells) put(head, "aria-sort", head.dataset.key === sort ? (sort === "name" ? "ascending" : "descending") : "none");
      sync(table.tBodies[0], shown, (domain) => domain.name, (domain) => makeRow(page, domain), (row, domain) => fillRow(page, row, domain, most));
    },
  };
}

function text(run, all, found) {
  const span = run.window_from === 0 ? `steps 0 to ${whole(run.confirmed)}` : `the last ${whole(run.confirmed - run.window_from)} steps`;
  return `${found === all ? `${all} domains` : `${found} of ${all} domains`}; realized is over ${span}, the target is that of the next unsealed step, before caps.`;
}

function matching(domains, words) {
  const wanted = words.trim().toLowerCase();
  return wanted ? domains.filter((domain) => domain.name.toLowerCase().includes(wanted) || domain.state === wanted) : domains;
}

function sorted(domains, key) {
  const column = COLUMNS.find((one) => one.key === key);
  if (!column) return domains;
  return [...domains].sort((a, b) => {
    const [x, y] = [column.by(a), column.by(b)];
    return typeof x === "string" ? x.localeCompare(y) : x - y;
  });
}

function heads(table, clicked) {
  const cells = COLUMNS.map((column) => {
    const content = column.by ? el("button", { type: "button", onclick: () => clicked(column.key) }, column.label) : el("span", { class: "out" }, column.label);
    const head = el("th", { scope: "col", class: classes(column) }, content);
    head.dataset.key = column.key;
    return head;
  });
  table.tHead.rows[0].append(el("th", { scope: "col", class: "pick" }, el("span", { class: "out" }, "In the plot")), ...cells);
}

const classes = (column) => [column.number && "number", column.bar && "barcell", column.minor && "minor", column.extra].filter(Boolean).join(" ");

function makeRow(page, domain) {
  const box = el("input", { type: "checkbox", "aria-label": `Plot ${domain.name}`, onchange: (event) => choose(page, domain.name, event.target) });
  const cells = COLUMNS.map((column) => {
    if (column.key === "name") return el("th", { scope: "row" }, domain.name);
    if (column.key === "bar") return el("td", { class: "barcell", "aria-hidden": "true" }, el("span", { class: "bullet" }, el("span", { class: "fill" }), el("span", { class: "mark" })));
    if (column.key === "state") return el("td", {}, el("span", { class: "chip" }));
    return el("td", { class: classes(column) });
  });
  return el("tr", {}, el("td", { class: "pick" }, box), ...cells);
}

function choose(page, name, box) {
  const names = page.chosen.filter((one) => one !== name);
  if (box.checked) names.push(name);
  page.choose(names.slice(-MOST_CHOSEN));
}

function fillRow(page, row, domain, most) {
  const [, name, target, share, , off, epoch, tokens, state] = row.cells;
  const place_ = page.chosen.indexOf(domain.name);
  row.cells[0].firstChild.checked = place_ >= 0;
  put(row, "data-color", place_ >= 0 ? String(place_) : "");
  put(row, "data-state", domain.state);
  put(name, "title", domain.name);
  say(target, percent(domain.target));
  say(share, percent(domain.window_share));
  const apart = domain.window_share - domain.window_due;
  say(off, Math.abs(apart) < 5e-5 ? "0.00" : points(apart));
  place(row.querySelector(".fill"), "--w", `${(100 * domain.window_share) / most}%`);
  place(row.querySelector(".mark"), "--x", `${(100 * domain.window_due) / most}%`);
  say(epoch, domain.cap ? `${epochs(domain.epochs)} / ${epochs(domain.cap)}` : epochs(domain.epochs));
  say(tokens, short(domain.tokens));
  say(state.firstChild, domain.state);
}
