// document-help: explains the member of a job document at the cursor, from services/job/DOCUMENT.md.

import {h} from "./dom.js";
import {cursorIn} from "./json-lines.js";

const COLUMNS = ["name", "type", "unit", "limits", "default", "meaning"];

// Returns a cell of the generated Markdown as plain text.
const plain = (cell) => cell.trim().replaceAll("\\|", "|").replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replaceAll("`", "");

// Returns the tables of the reference: a Map from "path type" ("algorithm ceal", "objective.data csv", "budget ", " ") to rows
// {name, type, unit, limits, default, meaning}.
export function parseReference(markdown) {
  const tables = new Map();
  let rows = [];
  for (const line of markdown.split("\n")) {
    const section = /^##+ (Top level|[\w.]+)(?: `(\w+)`)?$/.exec(line);
    if (section !== null) {
      rows = [];
      tables.set(`${section[1] === "Top level" ? "" : section[1]} ${section[2] ?? ""}`, rows);
    } else if (line.startsWith("| `") || line.startsWith("| [`")) {
      const cells = line.split(/(?<!\\)\|/).slice(1, -1).map(plain);
      rows.push(Object.fromEntries(COLUMNS.map((column, i) => [column, cells[i] ?? ""])));
    }
  }
  return tables;
}

// Returns the types that an object may have: ["ceal", "fedavg", ...], or [] if it has no type.
const typesOf = (tables, path) => [...tables.keys()].filter((key) => key.startsWith(`${path} `) && !key.endsWith(" "))
  .map((key) => key.slice(path.length + 1));

// Returns what is known about the member at an offset of a document: {path, row, object, type, others}. `row` is null if nothing
// is known; `others` are the members that the object could also have.
export function helpAt(tables, text, offset) {
  const {object, name, types, names} = cursorIn(text, offset);
  const type = types.get(object) ?? "";
  const rows = tables.get(`${object} ${type}`) ?? tables.get(`${object} `) ?? [];
  const choices = typesOf(tables, object);
  const row = name === "type" && choices.length > 0
    ? {name, type: "text", unit: "", limits: choices.join(", "), default: "", meaning: `which ${object.split(".").at(-1)}; the other members follow from it`}
    : rows.find((each) => each.name === name || (object === "labels" && name !== "")) ?? null;
  const path = [object, name].filter((part) => part !== "").join(".");
  return {path, row, object, type, others: rows.filter((each) => !names.has(each.name))};
}

const DETAILS = [["type", "Type"], ["unit", "Unit"], ["limits", "Limits"], ["default", "Default"]];

// Returns the elements that show the help.
export function helpElements({path, row, object, type, others}) {
  const title = path === "" ? "The document" : path;
  const whole = `${object === "" ? "the document" : object}${type === "" ? "" : `, type ${type}`}`;
  return [
    h("h3", {}, h("code", {}, title)),
    row === null ? h("p", {class: "summary"}, "Move the cursor to a member to see what it means.") : h("p", {}, row.meaning),
    h("dl", {class: "facts"}, DETAILS.filter(([key]) => row !== null && row[key] !== "").map(([key, label]) => [h("dt", {}, label), h("dd", {}, row[key])])),
    others.length === 0 ? null : h("details", {}, h("summary", {}, `More members of ${whole}`),
      h("dl", {class: "members"}, others.map((each) => [h("dt", {}, h("code", {}, each.name), each.default === "" ? "" : ` (${each.default})`), h("dd", {}, each.meaning)]))),
  ].filter((element) => element !== null);
}
