// Making elements, and the one tooltip of the page.

/** An element with properties, attributes (those with a dash, and role) and children. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A table of rows of text, each with its name first. */
export function table(rows) {
  return make("table", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, i) => make(i ? "td" : "th", { scope: i ? "" : "row" }, cell)))));
}

export class Tooltip {
  constructor(element) {
    this.element = element;
  }

  show(rows, clientX, clientY) {
    const { element } = this;
    element.replaceChildren(...rows.map(([name, value]) => make("div", {}, make("span", {}, `${name} `), make("b", {}, value))));
    element.hidden = false;
    const { width, height } = element.getBoundingClientRect();
    const left = clientX + width + 24 > innerWidth ? clientX - width - 14 : clientX + 14;
    element.style.left = `${Math.max(4, left)}px`;
    element.style.top = `${Math.min(Math.max(4, clientY + 12), innerHeight - height - 4)}px`;
  }

  hide() {
    this.element.hidden = true;
  }
}

/** Offer text or a blob as a file. */
export function save(name, content, type) {
  const link = make("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
