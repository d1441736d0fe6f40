// Numbers and times as people read them. Widths do not jump: figures are tabular and digits fixed.
export const percent = (part, digits = 2) => `${(100 * part).toFixed(digits)} %`;
export const points = (part) => `${part < 0 ? "−" : "+"}${Math.abs(100 * part).toFixed(2)}`;
export const whole = (value) => Math.round(value).toLocaleString("en-US");

export function short(value) {
  if (value === null || value === undefined) return "–";
  const units = [[1e15, "P"], [1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]];
  const unit = units.find(([size]) => Math.abs(value) >= size);
  if (!unit) return value.toLocaleString("en-US", { maximumFractionDigits: 1 });
  return `${(value / unit[0]).toPrecision(3)} ${unit[1]}`;
}

export function epochs(value) {
  return value >= 100 ? value.toFixed(0) : value.toFixed(2);
}

export function duration(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "–";
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
}

export const ago = (us, nowUs) => (nowUs - us < 1.5e6 ? "now" : `${duration((nowUs - us) / 1e6)} ago`);
export const when = (us) => new Date(us / 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";
