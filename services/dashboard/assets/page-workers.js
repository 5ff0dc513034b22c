// page-workers: the workers that have joined, the clients that they run and the jobs that they
// refuse.

import {cursorsIn, cursorsTo} from "./address.js";
import {getJson, repeat} from "./api.js";
import {h, setHidden, setText} from "./dom.js";
import {NOTHING, age, integer, plural, ranges} from "./format.js";
import {table} from "./job-parts.js";

const PAGE = 100;
const POLL_MS = 2000;

// Returns {job: [clients]} for a worker, in the order of its assignments.
function clientsByJob(worker) {
  const jobs = new Map();
  for (const {job, client} of worker.assignments) {
    jobs.set(job, [...(jobs.get(job) ?? []), client]);
  }
  return jobs;
}

function stateOf(worker) {
  if (worker.rival) {
    const title = `Workers at ${worker.address} and at ${worker.rival.address} have this name and replace each other: give each a --name of its own.`;
    return {text: "name in use twice", title};
  }
  return worker.silent ? "silent" : worker.state;
}

function rowOf(worker, index) {
  const runs = [...clientsByJob(worker)].map(([job, clients]) => `${job}: ${ranges(clients)}`).join("; ");
  const refuses = worker.refuses.map(({job, reason}) => `${job}: ${reason}`).join("; ");
  return {key: `${index} ${worker.name} ${worker.joined_ms}`, cells: [
    {text: worker.name, title: worker.name}, stateOf(worker), `${integer(worker.slots - worker.free_slots)} of ${integer(worker.slots)}`,
    {text: runs || NOTHING, title: runs}, {text: refuses || NOTHING, title: refuses}, worker.pinned_job ?? NOTHING, worker.token_name ?? NOTHING,
    `${age(worker.last_contact_age_ms)} ago`, `${age(Date.now() - worker.joined_ms)} ago`,
  ]};
}

export function mount(main, {signal, query, remember, onError, setTitle}) {
  let cursors = cursorsIn(query); // of the pages up to the current one
  let answer = null;
  let turn = new AbortController(); // aborts the requests of the current page
  const base = new URL(".", location.href).href.replace(/\/$/, ""); // with the prefix that a proxy may add
  setTitle("Workers");
  const summary = h("p", {class: "summary", "aria-live": "polite"}, "\u00a0");
  const view = table("Workers, newest first", [{text: "Worker"}, {text: "State"}, {text: "Slots in use"}, {text: "Runs clients of"}, {text: "Refuses"},
    {text: "Only job"}, {text: "Token"}, {text: "Last contact", num: true}, {text: "Joined", num: true}], {class: "scroll workers"});
  const empty = h("div", {class: "empty", hidden: true}, h("p", {}, "No worker has joined. This command starts one that runs ten clients:"),
    h("pre", {}, `tally-worker --coordinator ${base} --clients 10`));
  const newer = h("button", {type: "button", disabled: true, onclick: () => go(cursors.slice(0, -1))}, "Newer");
  const older = h("button", {type: "button", disabled: true, onclick: () => go([...cursors, answer.next_cursor])}, "Older");
  const place = h("span", {class: "place", "aria-live": "polite"}, "\u00a0");
  main.append(h("div", {class: "page-head"}, h("h1", {}, "Workers"), summary), h("div", {class: "card"}, view.element, empty),
    h("nav", {class: "pager", "aria-label": "Pages of the workers"}, newer, place, older));

  function show() {
    const {workers, workers_total: total, slots_free: free, slots_total: slots, next_cursor: next} = answer;
    setText(summary, `${plural(total, "worker")}; ${integer(free)} of ${plural(slots, "slot")} free`);
    view.set(workers.map(rowOf));
    setHidden(view.element, total === 0);
    setHidden(empty, total > 0);
    newer.disabled = cursors.length === 1;
    older.disabled = next === null;
    setText(place, `Page ${cursors.length}, ${plural(workers.length, "worker")}`);
  }

  async function load(mine) {
    const cursor = cursors.at(-1) === null ? "" : `&cursor=${encodeURIComponent(cursors.at(-1))}`;
    const newest = await getJson(`v1/workers?limit=${PAGE}${cursor}`, mine);
    if (!mine.aborted && !document.hidden) {
      answer = newest;
      show();
    }
  }

  function go(where) {
    cursors = where;
    remember(cursorsTo(cursors));
    poll();
  }

  function poll() {
    turn.abort();
    turn = new AbortController();
    const mine = turn.signal;
    repeat(() => load(mine), POLL_MS, mine, onError);
  }
  signal.addEventListener("abort", () => turn.abort(), {once: true});
  poll();
}
