// The thin page: one run's mixture, as it changes.
const percent = (value) => `${(100 * value).toFixed(2)} %`;

function show(snapshot) {
  const run = snapshot.run;
  document.getElementById("progress").textContent =
    `run ${run.name}: step ${run.confirmed} of ${run.end}, sealed to ${run.seal}`;
  const rows = snapshot.domains.map((domain) => {
    const row = document.createElement("tr");
    for (const text of [domain.name, percent(domain.target), percent(domain.share), domain.epochs.toFixed(3)]) {
      row.append(Object.assign(document.createElement("td"), { textContent: text }));
    }
    return row;
  });
  document.getElementById("domains").replaceChildren(...rows);
}

const answer = await fetch("/api/runs");
const { runs } = await answer.json();
if (runs.length) {
  const stream = new EventSource(`/api/runs/${encodeURIComponent(runs[0])}/stream`);
  stream.addEventListener("snapshot", (event) => show(JSON.parse(event.data)));
}
