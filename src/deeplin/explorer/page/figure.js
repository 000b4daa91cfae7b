// A figure of the page: title, "?" with its explanation, canvas, legend.
import { Chart } from "./chart.js";
import { palette } from "./colors.js";
import { make } from "./dom.js";
import { HELP } from "./help.js";

export class Figure {
  /** `Kind` is the class that draws (a Chart unless another is given). */
  constructor(parent, name, title, tooltip, Kind = Chart) {
    this.name = name;
    this.canvas = make("canvas", { tabIndex: 0, role: "img" });
    this.heading = make("span", {}, title);
    const help = make("p", { className: "help", id: `help-${name}`, hidden: true }, HELP[name] ?? "");
    const ask = make("button", {
      type: "button", className: "ask", "aria-expanded": "false", "aria-controls": help.id,
      "aria-label": `What does “${title}” show?`,
    }, "?");
    ask.addEventListener("click", () => {
      help.hidden = !help.hidden;
      ask.setAttribute("aria-expanded", String(!help.hidden));
    });
    this.key = make("div", { className: "key" });
    this.element = make("figure", { id: `figure-${name}`, className: "waiting" },
      make("figcaption", {}, this.heading, ask), help, this.canvas, this.key);
    parent.append(this.element);
    this.chart = new Kind(this.canvas, tooltip);
    this.legend = [];
  }

  get title() {
    return this.heading.textContent;
  }

  /** Show a picture; `legend` is [{name, color, dash, band, solid, dots}], `words` what a screen reader says. */
  show(picture, { legend = this.legend, title = this.title, words = "" } = {}) {
    this.element.classList.remove("waiting");
    if (title !== this.title) this.heading.textContent = title;
    this.canvas.setAttribute("aria-label", words ? `${title}: ${words}` : title);
    if (JSON.stringify(legend) !== JSON.stringify(this.legend) || !this.key.childElementCount) {
      this.legend = legend;
      this.recolor();
    }
    this.chart.show(picture);
  }

  recolor() {
    const colors = palette();
    this.key.replaceChildren(...this.legend.map(({ name, color, dash, band, solid, alpha, dots }) => {
      const mark = make("i", { className: solid ? "solid" : band ? "band" : dots ? "dots" : "stroke" });
      const shade = colors[color] ?? color;
      if (alpha) mark.style.opacity = alpha;
      if (band || solid) mark.style.background = shade;
      else if (dots) mark.style.color = shade;
      else mark.style.borderTop = `2px ${dash ? (dash[0] < 4 ? "dotted" : "dashed") : "solid"} ${shade}`;
      return make("span", {}, mark, name);
    }));
  }
}
