// job-document: the document of a job, taken from its detail.

// The document that the user submitted: the detail without the members that the coordinator added.
const IN_DOCUMENT = ["name", "labels", "algorithm", "objective", "clients", "cohort", "over_selection", "weighting", "horizon", "minibatch", "evaluate_every",
  "seed", "encoding", "initial_point", "domain", "reference", "budget", "evaluation", "stop", "keep", "webhook", "quorum", "policy", "round_deadline_ms", "job_deadline_ms"];
const documentOf = (job) => Object.fromEntries(Object.entries(job).filter(([key]) => IN_DOCUMENT.includes(key)));

export const documentText = (job) => JSON.stringify(documentOf(job), null, 2);

// Flattens an object: {"algorithm.step_size": 2, ...}.
export function flatten(object) {
  const members = {};
  const add = (value, path) => {
    if (value !== null && typeof value === "object" && !Array.isArray(value)) {
      Object.entries(value).forEach(([key, inner]) => add(inner, path === "" ? key : `${path}.${key}`));
    } else {
      members[path] = value;
    }
  };
  add(object, "");
  return members;
}

// The members of a job's document as texts, {"algorithm.step_size": "2", ...}, without its name.
export function parametersOf(job) {
  const {name: _, ...members} = flatten(documentOf(job));
  return Object.fromEntries(Object.entries(members).map(([path, value]) => [path, typeof value === "string" ? value : JSON.stringify(value)]));
}
