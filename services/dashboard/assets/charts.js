// charts: drawing with Chart.js (a classic script that defines the global Chart).

import {compact, real, integer} from "./format.js";

const Chart = globalThis.Chart;
const N_COLORS = 8;
const BAND_OPACITY = "26"; // 15 %, in hexadecimal
export const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
const NARROW = 480; // pixels: a tooltip of one line per value may not fit

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const seriesColor = (index) => color(index < 0 ? "--muted" : `--series-${(index % N_COLORS) + 1}`);

// Hovering shows, for each line, the point nearest in x, since lines of different jobs share no x
// values; of dots, the nearest.
Chart.Interaction.modes.nearestOfEach = (chart, event, _options, useFinalPosition) => {
  const {x, y} = Chart.helpers.getRelativePosition(event, chart);
  const area = chart.chartArea;
  if (x < area.left - 1 || x > area.right + 1 || y < area.top || y > area.bottom) { // points may lie on the border
    return [];
  }
  return chart.getSortedVisibleDatasetMetas().flatMap((meta) => {
    let best = -1;
    let distance = Infinity;
    meta.data.forEach((element, index) => {
      const at = element.getProps(["x", "y"], useFinalPosition);
      const gap = chart.data.datasets[meta.index].isDot ? Math.hypot(at.x - x, at.y - y) : Math.abs(at.x - x);
      if (gap < distance) {
        distance = gap;
        best = index;
      }
    });
    return best < 0 || chart.data.datasets[meta.index].isReference
      ? []
      : [{element: meta.data[best], datasetIndex: meta.index, index: best}];
  });
};

// Straight lines have their labels on them, alternately at the left and at the right end.
const referenceNames = {
  id: "referenceNames",
  afterDatasetsDraw(chart) {
    const {ctx, chartArea: area} = chart;
    ctx.save();
    ctx.font = "11px system-ui, sans-serif";
    let atRight = false;
    chart.data.datasets.forEach((set, index) => {
      const element = chart.getDatasetMeta(index).data[0];
      if (!set.isReference || element === undefined || !chart.isDatasetVisible(index)) {
        return;
      }
      const width = Math.min(ctx.measureText(set.label).width, area.width - 12);
      const x = atRight ? area.right - width - 6 : area.left + 6;
      const y = Math.max(element.y, area.top + 8);
      ctx.strokeStyle = color("--panel"); // an outline keeps the label readable over other lines
      ctx.lineWidth = 4;
      ctx.strokeText(set.label, x, y + 4, width);
      ctx.fillStyle = color("--text");
      ctx.fillText(set.label, x, y + 4, width);
      atRight = !atRight;
    });
    ctx.restore();
  },
};

// A logarithmic axis labels only 1, 2 and 5 times powers of ten.
function tickText(value, isLog) {
  if (isLog) {
    const lead = Math.round(value / 10 ** Math.floor(Math.log10(value) + 1e-9));
    return lead === 1 || lead === 2 || lead === 5 ? compact(value) : "";
  }
  return compact(value);
}

function axis(title, isLog, isInteger, fromZero) {
  return {
    type: isLog ? "logarithmic" : "linear",
    beginAtZero: !isLog && fromZero, grace: isLog || isInteger ? 0 : "4%",
    title: {display: true, text: title, color: color("--muted")},
    grid: {color: color("--grid"), borderColor: color("--line")},
    ticks: {
      color: color("--muted"), maxRotation: 0, autoSkipPadding: 12,
      precision: isInteger ? 0 : undefined,
      callback: (value) => tickText(value, isLog),
    },
  };
}

// The value behind a long name must stay visible.
const MAX_LABEL = 40;
const cut = (text) => (text.length > MAX_LABEL ? `${text.slice(0, MAX_LABEL - 1)}\u2026` : text);

const number = (value) => (Number.isInteger(value) ? integer(value) : real(value));

export class PlotView {
  // xTitle, yTitle: texts; xText, yText: functions that return the text of a value; xIsInteger; fromZero: whether the vertical
  // axis begins there; kind: "line" or "bar"
  constructor(canvas, {xTitle, yTitle, xText = number, yText = number, xIsInteger = true, fromZero = true, kind = "line"}) {
    this.options = {xTitle, yTitle, xText, yText, xIsInteger, fromZero, kind};
    this.scale = {x: false, y: false}; // logarithmic
    this.lines = [];
    this.cursor = -1; // position of the keyboard cursor, a point of the first visible line
    this.chart = new Chart(canvas, {type: kind === "bar" ? "bar" : "scatter", data: {datasets: []},
      options: this.chartOptions(), plugins: [referenceNames]});
  }

  chartOptions() {
    const {xTitle, yTitle, xText, yText, xIsInteger, fromZero} = this.options;
    const isNarrow = (chart) => chart.width < NARROW;
    return {
      animation: false, responsive: true, maintainAspectRatio: false, parsing: false,
      interaction: {mode: "nearestOfEach"}, events: ["mousemove", "mouseout", "touchstart", "touchmove"],
      scales: {
        x: {...axis(xTitle, this.scale.x, xIsInteger, true), grace: 0, offset: false}, y: axis(yTitle, this.scale.y, false, fromZero),
      },
      plugins: {
        legend: {display: false},
        tooltip: {
          animation: false,
          backgroundColor: color("--panel"), titleColor: color("--text"), bodyColor: color("--text"),
          borderColor: color("--line"), borderWidth: 1, padding: 8, usePointStyle: true, boxWidth: 8, boxHeight: 8,
          callbacks: {
            title: (items) => {
              const parts = items.length > 0 ? [`${xTitle}:`, xText(items[0].parsed.x)] : [];
              return items.length > 0 && isNarrow(items[0].chart) ? parts : parts.join(" ");
            },
            label: (item) => {
              const x = item.parsed.x === item.chart.tooltip?.dataPoints?.[0]?.parsed.x ? "" : ` (at ${xText(item.parsed.x)})`;
              const parts = [` ${cut(item.raw.label ?? item.dataset.label)}:`, `${yText(item.parsed.y)}${x}`];
              return isNarrow(item.chart) ? [parts[0], ` ${parts[1]}`] : parts.join(" ");
            },
            labelColor: (item) => ({backgroundColor: item.dataset.borderColor, borderColor: item.dataset.borderColor}),
          },
        },
      },
    };
  }

  // lines: [{label, points: [{x, y}], color: index, dash: index, stepped, hidden, isReference, isDot: points without a line, which may have labels of their own,
  // isEdge: the edge of a band; fillsTo: "-1" fills to the previous line}]
  set(lines) {
    this.lines = lines;
    this.draw();
  }

  setLog(name, on) {
    this.scale[name] = on;
    this.restyle();
  }

  // Must be called after a change of colours or of an axis.
  restyle() {
    this.chart.options = this.chartOptions();
    this.draw();
  }

  isVisible(point) {
    return Number.isFinite(point.x) && Number.isFinite(point.y) && (!this.scale.x || point.x > 0) && (!this.scale.y || point.y > 0);
  }

  draw() {
    const isBar = this.options.kind === "bar";
    this.chart.data.datasets = this.lines.map((line, index) => {
      const data = line.points.filter((point) => this.isVisible(point));
      const stroke = seriesColor(line.color);
      const drawsBars = isBar && data.length <= 200;
      return {
        type: drawsBars ? "bar" : "line", order: this.lines.length - index, // dashes lie on top
        label: line.label, data, hidden: line.hidden, isReference: line.isReference, isDot: line.isDot, showLine: !line.isDot,
        borderColor: stroke, backgroundColor: line.fillsTo === undefined ? stroke : `${stroke}${BAND_OPACITY}`, fill: line.fillsTo ?? false,
        borderWidth: line.isReference || line.isEdge ? 1 : drawsBars ? 0 : 2, borderDash: line.isReference ? [4, 4] : DASHES[(line.dash ?? 0) % DASHES.length],
        stepped: line.stepped ? "before" : false,
        pointRadius: line.isDot ? 5 : line.isReference || line.isEdge ? 0 : data.length <= 60 ? 2.5 : 0,
        pointHoverRadius: line.isReference ? 0 : line.isDot ? 7 : 4, pointStyle: "circle", maxBarThickness: 40, minBarLength: 1,
        barPercentage: 0.9, categoryPercentage: 0.9,
      };
    });
    if (isBar) { // whole bars at both ends
      const xs = this.lines.flatMap((line) => line.points.map((point) => point.x));
      const scale = this.chart.options.scales.x;
      scale.min = this.scale.x ? undefined : Math.min(...xs, 1) - 0.5;
      scale.max = this.scale.x ? undefined : Math.max(...xs, 1) + 0.5;
      scale.beginAtZero = false;
      scale.afterBuildTicks = this.scale.x ? undefined : (axisNow) => {
        axisNow.ticks = axisNow.ticks.filter((tick) => Number.isInteger(tick.value));
      };
    }
    this.chart.update("none");
  }

  // Moves the tooltip along the first visible line; returns its text, or "".
  moveCursor(step) {
    const index = this.chart.data.datasets.findIndex((set, i) => this.chart.isDatasetVisible(i) && !set.isReference && set.data.length > 0);
    if (index < 0) {
      return "";
    }
    const last = this.chart.data.datasets[index].data.length - 1;
    const from = this.cursor < 0 && step < 0 ? last + 1 : this.cursor;
    this.cursor = Math.max(0, Math.min(last, from + step));
    const element = this.chart.getDatasetMeta(index).data[this.cursor];
    const items = Chart.Interaction.modes.nearestOfEach(
      this.chart, {type: "mousemove", native: null, chart: this.chart, x: element.x, y: this.chart.data.datasets[index].isDot ? element.y : (this.chart.chartArea.top + this.chart.chartArea.bottom) / 2}, {}, true);
    this.chart.setActiveElements(items.map(({datasetIndex, index: i}) => ({datasetIndex, index: i})));
    this.chart.tooltip.setActiveElements(items.map(({datasetIndex, index: i}) => ({datasetIndex, index: i})), {x: element.x, y: element.y});
    this.chart.update("none");
    const {tooltip} = this.chart;
    return items.length === 0 ? "" : [...tooltip.title, ...tooltip.body.flatMap((part) => part.lines)].map((text) => text.trim()).join("; ");
  }

  // The point at a mouse event; undefined if there is none.
  pointAt(event) {
    const [found] = this.chart.getElementsAtEventForMode(event, "nearest", {intersect: true}, true);
    return found === undefined ? undefined : this.chart.data.datasets[found.datasetIndex].data[found.index];
  }

  clearCursor() {
    this.cursor = -1;
    this.chart.setActiveElements([]);
    this.chart.tooltip.setActiveElements([], {x: 0, y: 0});
    this.chart.update("none");
  }

  // Returns the chart on an opaque background with its title and legend, as a picture that can
  // stand alone.
  picture(title) {
    const source = this.chart.canvas;
    const scale = source.width / source.clientWidth;
    const visible = this.lines.filter((line) => !line.hidden && !line.isReference);
    const canvas = document.createElement("canvas");
    const head = 34;
    const row = 18;
    const margin = 12;
    canvas.width = source.width + 2 * margin * scale;
    canvas.height = source.height + (head + row * visible.length + margin) * scale;
    const context = canvas.getContext("2d");
    context.fillStyle = color("--panel");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.scale(scale, scale);
    context.fillStyle = color("--text");
    context.font = "600 15px system-ui, sans-serif";
    context.fillText(title, margin, 22);
    context.drawImage(source, margin, head, source.clientWidth, source.clientHeight);
    context.font = "12px system-ui, sans-serif";
    visible.forEach((line, index) => {
      const y = head + source.clientHeight + row * index + 12;
      context.strokeStyle = seriesColor(line.color);
      context.lineWidth = 2;
      context.setLineDash(DASHES[(line.dash ?? 0) % DASHES.length]);
      context.beginPath();
      context.moveTo(margin, y - 4);
      context.lineTo(margin + 24, y - 4);
      context.stroke();
      context.fillText(line.label, margin + 32, y);
    });
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  }

  destroy() {
    this.chart.destroy();
  }
}
