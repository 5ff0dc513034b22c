// download: saves text and pictures as files.

import {request} from "./api.js";

export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^A-Za-z0-9._-]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// Adds an apostrophe to a cell that a spreadsheet would take for a formula.
function csvCell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function saveCsv(header, rows, name) {
  const text = [header, ...rows].map((row) => row.map(csvCell).join(",")).join("\n");
  saveBlob(new Blob([`${text}\n`], {type: "text/csv"}), name);
}

// Saves the coordinator's response at an address; a link could not send the token.
export async function saveFrom(path, name, accept) {
  const response = await request(path, {headers: {Accept: accept}});
  saveBlob(await response.blob(), name);
}
