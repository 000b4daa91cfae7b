"use strict";
// Buttons of the page speak to the server through a few hidden text models.
const page = document.getElementById("page");
let count = 0;
const model = (name) => Bokeh.documents[0].get_model_by_name(name);
const wish = (text) => { model("wish").value = `${text}#${++count}`; };

function save(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

for (const button of document.querySelectorAll("[data-wish]"))
  button.addEventListener("click", () => wish(button.dataset.wish));

// --- figures: all plots of the page that is shown, one below the other -----------------------
function plotViews() {
  const found = [];
  const walk = (view) => {
    if (view.model.type === "Figure") { if (view.bbox.width > 0) found.push(view); return; }
    for (const child of view.child_views ?? []) walk(child);
  };
  const root = model(`layout_${page.dataset.tab}`);
  walk(Bokeh.index.find_one(root));
  return found;
}

function asImage(layer, type) {
  if (type === "svg") {
    const text = layer.ctx.get_serialized_svg(true);
    return "data:image/svg+xml;base64," + btoa(unescape(encodeURIComponent(text)));
  }
  return layer.canvas.toDataURL("image/png");
}

function place(views) {
  const left = Math.min(...views.map((v) => v.el.getBoundingClientRect().left));
  const top = Math.min(...views.map((v) => v.el.getBoundingClientRect().top));
  return views.map((view) => {
    const box = view.el.getBoundingClientRect();
    return { view, x: box.left - left, y: box.top - top, width: box.width, height: box.height };
  });
}

async function figure(type) {
  const boxes = place(plotViews());
  const width = Math.max(...boxes.map((b) => b.x + b.width));
  const height = Math.max(...boxes.map((b) => b.y + b.height));
  const name = `deeplin-${page.dataset.tab}.${type}`;
  const paper = getComputedStyle(document.documentElement).getPropertyValue("--paper");
  if (type === "svg") {
    const parts = boxes.map((b) =>
      `<image x="${b.x}" y="${b.y}" width="${b.width}" height="${b.height}" href="${asImage(b.view.export("svg"), "svg")}"/>`);
    save(name, `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"><rect width="100%" height="100%" fill="${paper}"/>${parts.join("")}</svg>`, "image/svg+xml");
    return;
  }
  const canvas = document.createElement("canvas");
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.fillStyle = paper;
  context.fillRect(0, 0, canvas.width, canvas.height);
  for (const b of boxes)
    context.drawImage(b.view.export("png").canvas, b.x * ratio, b.y * ratio, b.width * ratio, b.height * ratio);
  canvas.toBlob((blob) => save(name, blob, "image/png"), "image/png");
}
for (const button of document.querySelectorAll("[data-figure]"))
  button.addEventListener("click", () => figure(button.dataset.figure));

// --- a visitor's file ------------------------------------------------------------------------
const file = document.getElementById("file");
const note = document.getElementById("file-note");
file.addEventListener("change", async () => {
  const chosen = file.files[0];
  note.textContent = "";
  if (!chosen) return;
  if (chosen.size > Number(file.dataset.limit)) {
    note.textContent = `This file is larger than ${Number(file.dataset.limit) / 1e6} MB.`;
  } else {
    model("inbox").value = JSON.stringify({ name: chosen.name, text: await chosen.text() });
  }
  file.value = "";
});

// --- light and dark, link --------------------------------------------------------------------
const repaint = () => { for (const view of plotViews()) { view.model.properties.title.change.emit(); view.invalidate_all?.(); view.request_paint?.(); } };
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = getComputedStyle(root).colorScheme.includes("dark");
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("deeplin-theme", root.dataset.theme);
  repaint();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
document.getElementById("copy").addEventListener("click", () => navigator.clipboard?.writeText(location.href));

// --- what the server says --------------------------------------------------------------------
function connect() {
  if (!window.Bokeh?.documents?.length || !model("reply")) { setTimeout(connect, 30); return; }
  const tab = model("tab"), names = ["training", "phase", "wide", "theorems"];
  tab.properties.active.change.connect(() => { page.dataset.tab = names[tab.active]; });
  const reply = model("reply");
  reply.properties.value.change.connect(() => {
    if (!reply.value) return;
    const { name, text } = JSON.parse(reply.value);
    save(name, text, "text/csv");
  });
  const link = model("link");
  link.properties.value.change.connect(() => {
    history.replaceState(null, "", link.value ? `?${link.value}` : location.pathname);
  });
  document.documentElement.dataset.ready = "yes";
}
connect();
