// cards: a chart with its title, legend, buttons and a summary in words.

import {DASHES, PlotView, seriesColor} from "./charts.js";
import {announce, h, setAttribute, setHidden, setText, syncChildren} from "./dom.js";
import {saveBlob, saveCsv} from "./download.js";
import {TERMS, explain, setExplanation} from "./terms.js";

const SVG = "http://www.w3.org/2000/svg";

// A job may have twenty charts of thousands of points. Large ones are drawn only when they are in the window or near it.
const LARGE = 1000; // points of a line
const NEAR = "200px";
const observer = new IntersectionObserver((entries) => entries.forEach(({target, isIntersecting}) => cardOf.get(target)?.setNear(isIntersecting)),
  {rootMargin: NEAR});
const cardOf = new WeakMap(); // by element

// A line in the style of the chart's.
function swatch() {
  const box = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "line");
  Object.entries({class: "swatch", "aria-hidden": "true", width: 24, height: 4}).forEach(([name, value]) => box.setAttribute(name, value));
  Object.entries({x1: 0, y1: 2, x2: 24, y2: 2}).forEach(([name, value]) => line.setAttribute(name, value));
  box.append(line);
  return box;
}

// Buttons that show or hide lines; `hidden` is the set of keys of hidden lines.
export class Legend {
  constructor(hidden, onChange) {
    this.element = h("div", {class: "legend", role: "group", "aria-label": "Lines"});
    this.hidden = hidden;
    this.onChange = onChange;
  }

  draw(lines) {
    syncChildren(this.element, lines.map(({key}) => key), (key) => h("button",
      {type: "button", class: "legend-item", onclick: () => this.toggle(key)}, swatch(), h("span", {})));
    lines.forEach((line, index) => {
      const button = this.element.children[index];
      setAttribute(button, "aria-pressed", !this.hidden.has(line.key));
      setText(button.lastChild, line.label, line.label);
      const stroke = button.firstChild.firstChild;
      setAttribute(stroke, "stroke", seriesColor(line.color));
      setAttribute(stroke, "stroke-width", line.isEdge ? 1.5 : 3);
      setAttribute(stroke, "stroke-dasharray", DASHES[(line.dash ?? 0) % DASHES.length].join(" "));
    });
  }

  toggle(key) {
    if (!this.hidden.delete(key)) {
      this.hidden.add(key);
    }
    this.onChange();
  }
}

export class ChartCard {
  // The settings of PlotView and {title, about: the term that explains the chart, file: stem of file names, log: {x, y},
  // hidden: keys of lines that are hidden by a legend elsewhere, onPick: called with a point that was clicked}
  constructor(settings) {
    this.settings = settings;
    this.hidden = settings.hidden ?? new Set();
    this.legend = settings.hidden === undefined ? new Legend(this.hidden, () => this.draw(false)) : null;
    this.about = explain(settings.title, settings.about);
    this.title = h("h2", {class: "term"}, settings.title, this.about);
    this.canvas = h("canvas", {tabindex: "0", role: "img", "aria-label": settings.title});
    this.summary = h("p", {class: "summary"}, "\u00a0");
    this.element = h("section", {class: "card chart", hidden: true},
      h("header", {}, this.title, h("div", {class: "chart-tools"},
        this.logButton("x"), this.logButton("y"),
        h("button", {type: "button", class: "small", "data-save": "csv", title: "Download the values shown as CSV",
          onclick: () => this.saveValues()}, "CSV"),
        h("button", {type: "button", class: "small", "data-save": "png", title: "Download the chart as a picture",
          onclick: () => this.savePicture()}, "PNG"))),
      this.legend?.element, h("div", {class: "plot"}, this.canvas), this.summary);
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("blur", () => this.view?.cursor >= 0 && this.view.clearCursor());
    if (settings.onPick !== undefined) {
      this.canvas.addEventListener("click", (event) => {
        const point = this.view.pointAt(event);
        if (point !== undefined) {
          settings.onPick(point);
        }
      });
    }
    this.restyle = () => this.view && this.draw(true);
    window.addEventListener("tally-theme", this.restyle);
  }

  // Must be called after the card has been added to the document.
  open() {
    this.view = new PlotView(this.canvas, this.settings);
    this.view.scale = {x: false, y: false, ...this.settings.log};
    this.view.restyle();
    this.isNear = false; // until the observer says otherwise
    this.isLate = false; // something new was not drawn
    cardOf.set(this.element, this);
    observer.observe(this.element);
  }

  setNear(isNear) {
    this.isNear = isNear;
    if (isNear && this.isLate && this.view !== null) {
      this.draw(true);
    }
  }

  close() {
    observer.unobserve(this.element);
    window.removeEventListener("tally-theme", this.restyle);
    this.view?.destroy();
    this.view = null;
  }

  logButton(name) {
    const button = h("button", {type: "button", class: "small toggle", "data-log": name, title: `Logarithmic ${name} axis`,
      "aria-pressed": String(this.settings.log?.[name] ?? false)}, `log ${name}`);
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      setAttribute(button, "aria-pressed", on);
      this.view.setLog(name, on);
    });
    return button;
  }

  // lines as for PlotView.set(), each also with a `key`, or the `group` of lines that the legend hides together. A chart whose
  // lines have no value at all is not shown. `changed`: settings that are new.
  set(lines, summary, changed = {}) {
    this.lines = lines;
    Object.assign(this.settings, changed);
    if (this.title.firstChild.data !== this.settings.title) {
      this.title.firstChild.data = this.settings.title;
    }
    setExplanation(this.about, this.settings.title, TERMS[this.settings.about]);
    const {options} = this.view;
    const differ = Object.keys(options).filter((name) => changed[name] !== undefined && changed[name] !== options[name]);
    if (differ.length > 0) {
      differ.forEach((name) => { options[name] = changed[name]; });
      this.view.chart.options = this.view.chartOptions();
    }
    const hasData = lines.some(({points, isReference}) => !isReference && points.some(({x, y}) => Number.isFinite(x) && Number.isFinite(y)));
    setHidden(this.element, !hasData);
    setText(this.summary, summary === "" ? "\u00a0" : summary);
    setAttribute(this.canvas, "aria-label", `${this.settings.title}. ${summary} Arrow keys read the values.`);
    this.draw(false);
  }

  draw(isRestyled) {
    this.legend?.draw(this.lines ?? []);
    this.isLate = !this.isNear && (this.lines ?? []).some(({points}) => points.length > LARGE);
    if (this.isLate) {
      return;
    }
    if (isRestyled) {
      this.view.lines = this.shown();
      this.view.restyle();
    } else {
      this.view.set(this.shown());
    }
  }

  shown() {
    return (this.lines ?? []).map((line) => ({...line, hidden: this.hidden.has(line.group ?? line.key)}));
  }

  onKey(event) {
    const steps = {ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity};
    if (event.key in steps) {
      event.preventDefault();
      announce(this.view.moveCursor(steps[event.key]));
    } else if (event.key === "Escape") {
      this.view.clearCursor();
    }
  }

  saveValues() {
    const rows = this.shown().filter((line) => !line.hidden)
      .flatMap((line) => line.points.map((point) => [line.key, point.label ?? line.label, point.x, point.y]));
    saveCsv(["series", "label", this.view.options.xTitle, this.view.options.yTitle], rows, `${this.settings.file}.csv`);
  }

  async savePicture() {
    saveBlob(await this.view.picture(this.settings.title), `${this.settings.file}.png`);
  }
}
