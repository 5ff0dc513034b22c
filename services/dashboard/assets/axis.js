// axis: what the charts of a job are drawn against.

import {h} from "./dom.js";
import {bitsAndSize, integer, real} from "./format.js";
import {sign} from "./terms.js";

// By the name in the address: the title of the axis, the text of a value, and whether values are integers.
export const AXES = {
  steps: {title: "Time steps", text: integer, isInteger: true},
  rounds: {title: "Rounds", text: integer, isInteger: true},
  seconds: {title: "Seconds since the start", text: (value) => `${real(value)}\u00a0s`, isInteger: false},
  bits: {title: "Bits up per client + down", text: bitsAndSize, isInteger: false},
};
export const DEFAULT_AXIS = "steps";
export const axisOf = (name) => (Object.hasOwn(AXES, name ?? "") ? name : DEFAULT_AXIS);

// What is new in a chart's settings when it is drawn against an axis; for ChartCard.set().
export const axisSettings = (name) => ({xTitle: AXES[name].title, xText: AXES[name].text, xIsInteger: AXES[name].isInteger});

// Returns the value of each point on an axis; null where it is unknown. The clock of a coordinator may have been set back, or
// another one, with a clock of its own, may have taken over: seconds then stand still until they grow again.
export function placesOf(points, name, count, job) {
  if (name === "seconds") {
    let latest = 0;
    return points.map(({closedMs}) => {
      if (closedMs === null || job.started_ms === null) {
        return null;
      }
      latest = Math.max(latest, (closedMs - job.started_ms) / 1000);
      return latest;
    });
  }
  const place = {steps: (p) => p.timeStep, rounds: (p) => p.round, bits: (p) => p.uplink[count] / job.clients + p.downlink[count]}[name];
  return points.map(place);
}

// The choice of an axis, and onChange(name).
export function axisChoice(chosen, onChange) {
  const options = Object.entries(AXES).map(([name, {title}]) => h("option", {value: name, selected: name === chosen}, title.toLowerCase()));
  return h("div", {class: "page-tools"}, h("label", {for: "axis"}, "Horizontal axis "), sign("Horizontal axis"),
    h("select", {id: "axis", onchange: (event) => onChange(event.target.value)}, options));
}
