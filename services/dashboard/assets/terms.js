// terms: what the words and charts of the dashboard mean, in one line each, and the buttons that show these lines.
//
// The button of a label lies over it, so that a tap on the label or Enter on its focus ring opens the explanation; a control has
// a sign "?" beside it. The text is also the button's title: mice and screen readers get it without a click.

import {h, setAttribute, setHidden, setText} from "./dom.js";

const BITS_NOTE = "1 KB is 1,000 bytes.";

// By the label that they explain.
export const TERMS = {
  // Progress
  "Regret": "The sum of f(w) \u2212 f(x*) over all points w at which a client queried a gradient so far; x* minimises the loss f. Less is better.",
  "Loss": "f at the point where the last round queried gradients: the mean of what its clients report, each over its own data.",
  "Time step": "Gradient queries or local steps that each client has made so far. The job ends at its horizon, the number behind \u201cof\u201d.",
  "Round": "One exchange: the clients compute from the same point, send their updates, and the server broadcasts the result.",
  "Iterate": "How often the server has moved the point x. An iterate may take several rounds, if the algorithm asks for more samples first.",
  "Stage": "CEAL\u2019s level of precision: in each later stage, gradients are sampled and quantized more finely.",
  "Bits up per client": `What a client sent to the server on average, in exact payload bits. ${BITS_NOTE}`,
  "Bits down": `What the server broadcast, in exact payload bits; a broadcast to all clients counts once. ${BITS_NOTE}`,
  "Seconds per round": "Seconds from one round\u2019s end to the next, over the latest quarter of the rounds; after the end, over the whole job.",
  "Remaining (ETA)": "The time until the horizon at the latest speed. A rule that stops the job earlier is not foreseen.",
  "Took": "The time from the job\u2019s start to its end, pauses included.",
  "Age": "The time since the job was submitted.",
  "Progress": "Time steps done, of the job\u2019s horizon.",
  "Status": "queued: waits for workers; running; paused; completed: reached its end; failed: stopped by an error; cancelled: stopped by a person.",
  "Job": "The job\u2019s name, id and labels.",
  "metric": "A number that workers report: its mean over the clients of the last round that has it. The charts also show minimum and maximum.",
  // Charts
  "Cumulative regret": "How the regret grew. A curve that flattens out means that the points are close to the minimum.",
  "Cumulative bits": "All bits sent so far, up (mean over the clients) and down (each broadcast once). Lower is cheaper.",
  "Regret against bits": "What a number of bits has bought: lower and further left is better.",
  "Loss against bits": "What a number of bits has bought: lower and further left is better.",
  "Regret against uplink": "What a number of bits up per client has bought: lower and further left is better.",
  "Epoch length": "How many time steps the algorithm spent at each iterate before it moved on.",
  "Loss by round": "The loss of each round, at the point where the round queried gradients.",
  "Uplink per client": "Bits that a client sent to the server on average.",
  "Downlink": "Bits that the server broadcast; a broadcast counts once.",
  "Metric by round": "A number that workers report. The line is the mean over a round\u2019s clients; the band reaches from the minimum (dotted) to the maximum (dashed).",
  "Variants in a picture": "The mean of a result over the seeds of each variant, against a member that varies or another result. A click on a dot opens its jobs.",
  "Metric of each job": "A number that workers report: the mean over the clients of each round.",
  // Controls
  "payload": "Bits really sent: the exact length of the messages, which a decoder can read.",
  "formula": "Bits as the paper counts them: d + \u03a3|level| for CEAL, 32 a coordinate for floats. Not the length of a message that can be decoded.",
  "Horizontal axis": "What the charts are drawn against: time steps, rounds, seconds since the start, or bits up per client + down.",
  "Table I reference": "Draws the totals of Table I in the paper of CEAL, counted by its formula, as grey lines.",
  "Group seeds": "Jobs that differ only in their seed become one line: their mean, in a band of one standard deviation to each side.",
  // Tables
  "Variants": "Jobs that differ only in their seed are one row: the mean \u00b1 one standard deviation over the seeds, the best first.",
  "Seeds of a variant": "How many jobs differ only in their seed.",
  "Bits": "Everything that was sent, by direction and by way of counting.",
  "Formula": "Bits as the paper counts them: d + \u03a3|level| for CEAL, 32 a coordinate for floats.",
  "Payload": "Bits really sent: the exact length of the messages, which a decoder can read.",
  "Wire": "Bits of the HTTP messages that carried them, with headers, before TLS.",
  "Size": `The payload bits as bytes. ${BITS_NOTE}`,
  "Messages": "How many messages were sent.",
  "Clipped": "Coordinates that were beyond the quantizer\u2019s range and were cut to it.",
  "Up, all clients": "From the clients to the server, summed over the clients.",
  "Up per client": "From the clients to the server, divided by the number of clients.",
  "Down, broadcast": "From the server to the clients; a broadcast counts once.",
  "Down, delivered": "The same broadcasts, counted once for each client of the round.",
  "Recovery": "Broadcasts sent again after a fault or to a newly drawn client, and points sent in place of broadcasts.",
  "Control": "What the server tells the clients besides the broadcasts, such as whether a norm test passed, and estimates of an opening round.",
  "Telemetry": "What clients report about themselves: losses, clipped coordinates and metrics. No part of the algorithm.",
  "Clients": "The participants, each with its own data. A worker is a process that runs one or more of them.",
  "Worker": "A process that runs clients: it polls the coordinator for tasks and posts their updates.",
  "State": "working; waiting for a task; or silent: no call since it missed a deadline, or for half of the session timeout.",
  "Last contact": "The time since the worker\u2019s last request.",
  "Facts": "What the job was given, and what is known about its problem.",
  "Latest rounds": "The last ten rounds, the newest first.",
  "t": "Time step: gradient queries or local steps of each client up to the end of the round.",
  "Samples": "Gradient queries of each client in this round.",
  "Norm": "The length of the mean update that the server received, before it moves the point.",
  "Passed": "Whether the update was long enough against its noise for the server to move (CEAL\u2019s norm test); if not, the next stage begins.",
  // Facts
  "Algorithm": "The rule by which clients compute and the server moves the point.",
  "Parameters": "The algorithm\u2019s constants.",
  "Estimates": "Values that an opening round found for parameters that are \u201cauto\u201d.",
  "Smoothness": "L: the largest curvature of f. Step sizes above 2/L may diverge.",
  "Strong convexity": "\u03bc: the least curvature of f. The smaller beside the smoothness, the slower is any first-order method.",
  "Warnings": "What the coordinator advises against in this document.",
  "Objective": "The loss that is minimised, and its data.",
  "Minibatch": "Data points of one gradient query.",
  "Encoding": "How levels are written as bits.",
  "Seed": "Fixes every random choice: the same document and seed give the same result to the last bit.",
  "Initial point": "Where x starts.",
  "Domain": "The set that x must stay in; none: anywhere.",
  "f(x*)": "The least possible loss, from which the regret is counted.",
  "x checksum": "A checksum of the current point: equal checksums are equal to the last bit.",
  "Created": "When the job was submitted.",
  "Started": "When its first round opened.",
  "Ended": "When it completed, failed or was cancelled.",
  "Stopped by": "The rule of the document\u2019s \u201cstop\u201d that ended the job before its horizon.",
  // Comparison
  "Up + down": `Payload bits up per client and bits down together, as bytes. ${BITS_NOTE}`,
  "Now": "The newest values of each job. With grouped seeds: the mean \u00b1 the standard deviation over the seeds.",
  "Parameters that differ": "Where the job documents are not equal.",
  "Parameter": "A member of the job document.",
  "Up, formula": "Bits up per client as the paper counts them.",
  "Up, payload": "Bits up per client, really sent.",
  "Down, formula": "Bits down as the paper counts them; a broadcast counts once.",
  "Down, payload": "Bits down, really sent; a broadcast counts once.",
  // Workers
  "Slots in use": "Clients that the worker runs, of those that it can run.",
  "Runs clients of": "Jobs, and the numbers of their clients that this worker runs.",
  "Refuses": "Jobs that the worker cannot serve, and why.",
  "Only job": "The job that the worker was started for; it serves no other.",
  "Token": "The name of the access token that the worker uses.",
  "Joined": "The time since the worker joined.",
};

const box = h("div", {id: "explanation", class: "explanation", role: "note", hidden: true});
const texts = new WeakMap(); // of the buttons
let opened = null;

function hide() {
  if (opened !== null) {
    setAttribute(opened, "aria-expanded", false);
    opened.removeAttribute("aria-describedby");
    opened = null;
    setHidden(box, true);
  }
}

const MARGIN = 8; // to the edges of the window
const MAX_WIDTH = 340;

function show(button) {
  hide();
  opened = button;
  setText(box, texts.get(button));
  document.body.append(box);
  setHidden(box, false);
  setAttribute(button, "aria-expanded", true);
  setAttribute(button, "aria-describedby", box.id);
  const at = button.getBoundingClientRect();
  const room = document.documentElement;
  box.style.maxWidth = `${Math.min(MAX_WIDTH, room.clientWidth - 2 * MARGIN)}px`;
  const left = Math.max(MARGIN, Math.min(at.left, room.clientWidth - box.offsetWidth - MARGIN));
  const isBelow = at.bottom + box.offsetHeight + MARGIN <= room.clientHeight || at.top < box.offsetHeight + MARGIN;
  box.style.left = `${left + window.scrollX}px`;
  box.style.top = `${(isBelow ? at.bottom + 4 : at.top - box.offsetHeight - 4) + window.scrollY}px`;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest(".ask");
  if (button === null) {
    hide();
  } else if (button === opened) {
    hide();
  } else {
    show(button);
  }
});
document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
document.addEventListener("focusout", (event) => event.target === opened && hide());
window.addEventListener("hashchange", hide);

// Changes what a button explains.
export function setExplanation(button, label, text) {
  texts.set(button, text);
  setAttribute(button, "aria-label", `What is ${label}?`);
  setAttribute(button, "title", text);
}

function ask(label, text, name) {
  const button = h("button", {type: "button", class: name, "aria-expanded": "false"});
  setExplanation(button, label, text);
  return button;
}

// The button over a label; it belongs behind the label's text in an element of the class "term". null if there is nothing to say.
export const explain = (label, key = label) => (TERMS[key] === undefined ? null : ask(label, TERMS[key], "ask"));

// The sign "?" beside a control.
export const sign = (label, key = label) => (TERMS[key] === undefined ? null : ask(label, TERMS[key], "ask sign"));

// An element that holds a label and its explanation: labelled("dt", {}, "Regret").
export function labelled(tag, props, label, key = label) {
  const button = explain(label, key);
  return h(tag, {...props, class: [props.class, button === null ? null : "term"].filter(Boolean).join(" ") || null}, label, button);
}
