// What is asked of the server. A session that has ended leads to the login.
const path = (run, rest = "") => `/api/runs/${encodeURIComponent(run)}${rest}`;

export class Refused extends Error {}

async function get(url) {
  const answer = await fetch(url, { credentials: "same-origin", cache: "no-store" });
  if (answer.status === 401) {
    location.assign("/login");
    throw new Refused("the session has ended");
  }
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error ? value.error.message : `the server answered ${answer.status}`);
  return value;
}

export const runs = () => get("/api/runs");
export const snapshot = (run) => get(path(run));
export const log = (run, before) => get(path(run, `/log?before=${before}`));
export const batch = (run, step) => get(path(run, step === null ? "/batch" : `/batch?step=${step}`));
export const row = (run, step, slot, tokens) => get(path(run, `/batch?step=${step}&slot=${slot}&tokens=${tokens}`));

export function history(run, domains) {
  const wanted = domains.map((name) => `domain=${encodeURIComponent(name)}`).join("&");
  return get(path(run, `/history?${wanted}`));
}

const SILENT = 15000;
const AWAY = "No answer from the server; trying again";

// The snapshots of a run as they come; `onState` is told live, wait or lost, and why. A connection that says nothing is
// made anew. Where the server takes no more streams, the page asks every few seconds instead.
export class Stream {
  constructor(run, onSnapshot, onState) {
    Object.assign(this, { run, onSnapshot, onState, ended: false });
    this.open();
    this.timer = setInterval(() => this.check(), 3000);
  }

  open() {
    this.heard = performance.now();
    this.source = new EventSource(path(this.run, "/stream"));
    this.source.addEventListener("snapshot", (event) => {
      this.alive();
      this.onSnapshot(JSON.parse(event.data));
    });
    this.source.addEventListener("beat", () => this.alive());
    this.source.addEventListener("refused", () => location.assign("/login"));
    this.source.addEventListener("failed", (event) => this.onState("lost", JSON.parse(event.data).message));
    this.source.addEventListener("error", () => {
      if (this.source.readyState === EventSource.CLOSED) this.ask();
      else this.onState("lost", AWAY);
    });
  }

  // The server has answered, but with no stream: its words say why, or the figures come without one.
  async ask() {
    try {
      const found = await snapshot(this.run);
      if (this.ended) return;
      this.onSnapshot(found);
      this.onState("wait", "Refreshed every few seconds: many pages are connected");
    } catch (error) {
      if (!this.ended && !(error instanceof Refused)) this.onState("lost", error instanceof TypeError ? AWAY : error.message);
    }
  }

  alive() {
    this.heard = performance.now();
    this.onState("live", "Live");
  }

  check() {
    const closed = this.source.readyState === EventSource.CLOSED;
    if (!closed && performance.now() - this.heard < SILENT) return;
    if (!closed) this.onState("lost", AWAY);
    this.source.close();
    this.open();
  }

  close() {
    this.ended = true;
    clearInterval(this.timer);
    this.source.close();
  }
}
