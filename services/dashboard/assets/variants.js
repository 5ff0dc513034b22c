// variants: job documents that differ in one member and in their seeds.

import {flatten} from "./job-document.js";

const MOST = 500;

// "0.1, 0.2" or "[1, 2], \"auto\"", as JSON without the outer brackets; words need no quotes. Throws an Error.
export function valuesOf(text) {
  try {
    return JSON.parse(`[${text}]`);
  } catch {
    const words = text.split(",").map((word) => word.trim());
    if (!words.every((word) => /^[A-Za-z_][\w-]*$|^-?[\d.]+(e[-+]?\d+)?$/i.test(word))) {
      throw new Error("The values are neither JSON nor words, separated by commas.");
    }
    return words.map((word) => (["true", "false", "null"].includes(word) ? JSON.parse(word) : Number.isNaN(Number(word)) ? word : Number(word)));
  }
}

// "7" or "101-110". Throws an Error.
export function seedsOf(text) {
  const found = /^\s*(\d{1,15})\s*(?:-\s*(\d{1,15})\s*)?$/.exec(text);
  const [first, last] = found === null ? [1, 0] : [Number(found[1]), Number(found[2] ?? found[1])];
  if (last < first || last - first >= MOST) {
    throw new Error(`The seeds are a number, or a range such as 101-110, of at most ${MOST}.`);
  }
  return Array.from({length: last - first + 1}, (_, i) => first + i);
}

function setMember(document, path, value) {
  const keys = path.split(".");
  let at = document;
  for (const key of keys.slice(0, -1)) {
    if (!Object.hasOwn(at, key)) {
      at[key] = {};
    }
    if (at[key] === null || typeof at[key] !== "object" || Array.isArray(at[key])) {
      throw new Error(`${path}: ${key} is no object in this document.`);
    }
    at = at[key];
  }
  at[keys.at(-1)] = value;
}

// Returns [{document, name}] for all values (of the member at `path`; "" = it does not vary) and all seeds ("" = that of the
// document), with the label sweep=`sweep`. Throws an Error.
export function variantsOf(text, {path, values, seeds}, sweep) {
  if (path === "" && seeds.trim() === "") {
    throw new Error("Name a member, or seeds.");
  }
  if (path !== "" && !/^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$/.test(path)) {
    throw new Error("A member is a path such as algorithm.step_size.");
  }
  if (path !== "" && values.trim() === "") {
    throw new Error("Give values for the member, separated by commas.");
  }
  if (path === "seed" && seeds.trim() !== "") {
    throw new Error("Give the seeds in one place: as the member, or in Seeds.");
  }
  const allValues = path === "" ? [undefined] : valuesOf(values);
  const allSeeds = seeds.trim() === "" ? [undefined] : seedsOf(seeds);
  if (allValues.length === 0 || allValues.length * allSeeds.length > MOST) {
    throw new Error(`These are ${allValues.length * allSeeds.length} jobs; from 1 to ${MOST} are possible.`);
  }
  return allValues.flatMap((value) => allSeeds.map((seed) => {
    const document = JSON.parse(text);
    if (document === null || typeof document !== "object" || Array.isArray(document)) {
      throw new Error("The document is no object.");
    }
    if (value !== undefined) {
      setMember(document, path, value);
    }
    if (seed !== undefined) {
      document.seed = seed;
    }
    document.labels = {...document.labels, sweep};
    const parts = [value === undefined ? "" : `${path} ${JSON.stringify(value)}`, seed === undefined ? "" : `seed ${seed}`];
    return {document, name: parts.filter((part) => part !== "").join(", ")};
  }));
}

// The paths of all members of a document that are no objects; [] if the text is no JSON object.
export function pathsOf(text) {
  try {
    return Object.keys(flatten(JSON.parse(text))).filter((path) => path !== "" && !path.startsWith("labels."));
  } catch {
    return []; // it is being edited
  }
}
