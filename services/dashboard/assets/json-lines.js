// json-lines: where the members of a JSON text are, and which member is at an offset.

const TOKEN = /"(?:[^"\\\n]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/g;

// Calls visit({token, index, open, isKey}) for each token. `open` lists the enclosing levels, outermost first: {array, key,
// index}. Of invalid JSON, visits what can be read.
function walk(text, visit) {
  const open = [];
  let wantsKey = false;
  for (const {0: token, index} of text.matchAll(TOKEN)) {
    const inner = open.at(-1);
    const isKey = token.startsWith('"') && wantsKey && inner !== undefined;
    if (isKey) {
      inner.key = token.slice(1, -1);
      wantsKey = false;
    }
    if (visit({token, index, open, isKey}) === false) {
      return;
    }
    if (token === "{" || token === "[") {
      open.push({array: token === "[", key: "", index: 0});
      wantsKey = token === "{";
    } else if (token === "}" || token === "]") {
      open.pop();
      wantsKey = false;
    } else if (token === ",") {
      if (inner?.array) {
        inner.index++;
      } else if (inner !== undefined) {
        inner.key = "";
      }
      wantsKey = inner !== undefined && !inner.array;
    }
  }
}

const pathOf = (levels) => levels.map((level) => (level.array ? level.index : level.key)).join(".");

// Returns the offsets of all members by path, such as "objective.data.dim"; of duplicate keys the
// last one wins, as in JSON.
function memberOffsets(text) {
  const offsets = new Map();
  walk(text, ({index, open, isKey}) => {
    if (isKey) {
      offsets.set(pathOf(open), index);
    }
  });
  return offsets;
}

// Returns where an offset is: {object, name, types, names}. `object` is the path of the innermost enclosing object, `name` its
// member at the offset ("" between members), `types` the "type" of each object, and `names` the names in that object.
export function cursorIn(text, offset) {
  const types = new Map();
  const members = new Map(); // by object
  let at = [];
  walk(text, ({token, index, open, isKey}) => {
    const object = pathOf(open.slice(0, -1));
    if (isKey) {
      members.set(object, new Set([...(members.get(object) ?? []), open.at(-1).key]));
    } else if (token.startsWith('"') && open.at(-1)?.key === "type") {
      types.set(object, token.slice(1, -1));
    }
    if (index < offset) {
      const after = token === "{" || token === "[" ? [...open, {key: ""}] : token === "}" || token === "]" ? open.slice(0, -1) : open;
      at = after.map(({key}) => key);
      if (token === ",") {
        at[at.length - 1] = "";
      }
    }
  });
  const object = at.slice(0, -1).join(".");
  return {object, name: at.at(-1) ?? "", types, names: members.get(object) ?? new Set()};
}

const lineAt = (text, offset) => text.slice(0, offset).split("\n").length;

// 1-based; the line of the nearest enclosing member if the field itself is absent; 0 if unknown.
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

// Returns the coordinator's message about a problem as a line of text.
export function lineOfProblem(text, problem) {
  const syntax = /^line (\d+) column/.exec(problem.detail ?? "");
  if (syntax !== null && problem.code === "malformed") {
    return Number(syntax[1]);
  }
  return typeof problem.field === "string" ? lineOfField(text, problem.field) : 0;
}

// Returns the bounds of a line, [from, to).
export function lineRange(text, line) {
  const lines = text.split("\n");
  const from = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  return [from, from + (lines[line - 1]?.length ?? 0)];
}
