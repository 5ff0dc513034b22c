// json-lines: in which line of a JSON text a field stands.

const TOKEN = /"(?:[^"\\\n]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/g;

// Offsets of all members by path, "objective.data.dim"; the last of equal keys wins, as in JSON.
// A text that is no JSON gives what could be read of it.
function memberOffsets(text) {
  const offsets = new Map();
  const open = []; // {array, key, index}
  let wantsKey = false;
  const path = () => open.map((level) => (level.array ? level.index : level.key)).join(".");
  for (const match of text.matchAll(TOKEN)) {
    const token = match[0];
    const inner = open.at(-1);
    if (token === "{" || token === "[") {
      open.push({array: token === "[", key: "", index: 0});
      wantsKey = token === "{";
    } else if (token === "}" || token === "]") {
      open.pop();
      wantsKey = false;
    } else if (token === ",") {
      if (inner?.array) {
        inner.index++;
      }
      wantsKey = inner !== undefined && !inner.array;
    } else if (token.startsWith('"') && wantsKey && inner !== undefined) {
      inner.key = token.slice(1, -1);
      offsets.set(path(), match.index);
      wantsKey = false;
    }
  }
  return offsets;
}

const lineAt = (text, offset) => text.slice(0, offset).split("\n").length;

// 1-based; the line of the nearest member around the field if it is not there itself; 0 = unknown.
export function lineOfField(text, field) {
  const offsets = memberOffsets(text);
  const parts = field.split(/[.[\]]+/).filter((part) => part !== "");
  for (; parts.length > 0; parts.pop()) {
    const offset = offsets.get(parts.join("."));
    if (offset !== undefined) {
      return lineAt(text, offset);
    }
  }
  return 0;
}

// What the coordinator says of a problem, as a line of the text.
export function lineOfProblem(text, problem) {
  const syntax = /^line (\d+) column/.exec(problem.detail ?? "");
  if (syntax !== null && problem.code === "malformed") {
    return Number(syntax[1]);
  }
  return typeof problem.field === "string" ? lineOfField(text, problem.field) : 0;
}

// Where a line begins and ends, [from, to).
export function lineRange(text, line) {
  const lines = text.split("\n");
  const from = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  return [from, from + (lines[line - 1]?.length ?? 0)];
}
