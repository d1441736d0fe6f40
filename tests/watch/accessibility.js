// What an accessibility checker calls serious: names, ids, heads of tables, order of headings, contrast of text.
() => {
  const problems = [];
  const named = (node) => (node.getAttribute("aria-label") || node.textContent || node.title || "").trim()
    || (node.labels && [...node.labels].map((label) => label.textContent).join("").trim());
  for (const node of document.querySelectorAll("button, select, input, a[href], [role=img], [role=region], [role=listbox]")) {
    if (node.checkVisibility() && !named(node)) problems.push(`no name: ${node.outerHTML.slice(0, 80)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  for (const id of ids.filter((id, at) => ids.indexOf(id) !== at)) problems.push(`id twice: ${id}`);
  for (const node of document.querySelectorAll("[aria-labelledby]")) {
    if (!document.getElementById(node.getAttribute("aria-labelledby"))) problems.push(`labelled by nothing: ${node.id}`);
  }
  for (const table of document.querySelectorAll("table")) {
    if (table.checkVisibility() && !table.caption && !table.ariaLabel && !table.closest("[role=region]")) problems.push(`table without a name: ${table.id}`);
    if (!table.querySelector("th[scope]")) problems.push(`table without heads: ${table.id}`);
  }
  const levels = [...document.querySelectorAll("h1, h2, h3")].filter((node) => node.checkVisibility()).map((node) => +node.tagName[1]);
  levels.forEach((level, at) => { if (level > (levels[at - 1] ?? 0) + 1) problems.push(`heading ${level} after ${levels[at - 1]}`); });
  if (document.querySelectorAll("main").length !== 1 || !document.documentElement.lang) problems.push("no one main, or no language");
  const rgb = (text) => {
    const found = text.match(/[\d.]+/g).map(Number);
    const scale = text.startsWith("color(") ? 255 : 1;
    return [found[0] * scale, found[1] * scale, found[2] * scale, found[3] ?? 1];
  };
  const light = (color) => {
    const [r, g, b] = color.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = rgb(getComputedStyle(at).backgroundColor);
      if (color[3] > 0.99) return color;
    }
    return [255, 255, 255, 1];
  };
  const seen = new Set();
  for (const node of document.querySelectorAll("body *")) {
    const text = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!text || !node.checkVisibility() || node.closest(".out, noscript, option") || node.matches("option")) continue;
    const [front, back] = [light(rgb(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    const key = `${node.tagName}.${node.className}`;
    if (ratio < 4.5 && !seen.has(key)) { seen.add(key); problems.push(`contrast ${ratio.toFixed(2)}: ${key} ${node.textContent.slice(0, 30)}`); }
  }
  return problems;
}
