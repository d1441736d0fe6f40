// Elements without markup in strings: nothing here could ever run what a name or a text says.
export const byId = (id) => document.getElementById(id);

export function el(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && key !== "list" && key !== "role") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Changes a text only when it differs: selections and screen readers are left alone.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function put(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

// A custom property, for widths and places; the policy allows no style attributes in markup.
export function place(node, name, value) {
  if (node.style.getPropertyValue(name) !== value) node.style.setProperty(name, value);
}

// Rows by key: those that stay are kept and moved only if they must be; `make(item)` makes one, `update(row, item)` fills it.
export function sync(parent, items, key, make, update) {
  const held = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let before = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let row = held.get(name);
    if (row) held.delete(name);
    else {
      row = make(item);
      row.dataset.key = name;
    }
    update(row, item);
    if (row === before) before = before.nextElementSibling;
    else parent.insertBefore(row, before);
  }
  for (const row of held.values()) row.remove();
}

// The colour that a custom property stands for now, in the theme that holds.
export function color(name) {
  const probe = el("span", { hidden: true });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// A button that shows all of a list, or the first of it again.
export class Fold {
  constructor(button, first, what, redraw) {
    this.button = button;
    this.first = first;
    this.what = what;
    this.open = false;
    button.addEventListener("click", () => {
      this.open = !this.open;
      redraw();
    });
  }

  of(items) {
    this.button.hidden = items.length <= this.first;
    say(this.button, this.open ? `Show the first ${this.first}` : `Show all ${items.length} ${this.what}`);
    put(this.button, "aria-expanded", String(this.open));
    return this.open ? items : items.slice(0, this.first);
  }
}
