// Validates responses of the coordinator against api/openapi.yaml.
//
//   import {validator} from "./validate.mjs";
//   const check = await validator();
//   check({method, path, status, contentType, headers, body});
//
// throws an Error that describes what is wrong. `path` may be a whole URL with a query. `headers` (an object, Headers or a list
// of pairs) and `body` (text or bytes) are not checked if omitted; `contentType` may be omitted if `headers` contains it. With
// playwright:
//
//   page.on("response", async (response) => {
//     const headers = await response.allHeaders();
//     const body = isStream ? undefined : await response.body();
//     check({method: response.request().method(), path: response.url(), status: response.status(),
//            headers, body});
//   });
//
// An event stream is checked as far as it goes, without an event that was cut off.
//
//   const answer = await check.fetch(url, options);   fetch() and check(); {status, headers, text}
//   check.document, check.resolve(value)              the document itself; value, or what its $ref names
//   check.schema("JobDocument")                       (value) => list of errors of ajv, empty if valid
//   check.used                                        Set of "GET /v1/jobs 200"
//
// TALLY_OPENAPI names the document; the default is right for tests/e2e and its copy in build/e2e.
import {readFile} from "node:fs/promises";
import {fileURLToPath} from "node:url";

import {parseYaml} from "@redocly/openapi-core";
import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

export const OPENAPI = process.env.TALLY_OPENAPI
  ?? fileURLToPath(new URL("../../api/openapi.yaml", import.meta.url));

// Every server sends these; documenting them would be noise.
const PLAIN_HEADERS = new Set(["connection", "content-length", "content-type", "date", "keep-alive",
  "transfer-encoding"]);

const normalType = (type) => type.toLowerCase().replace(/\s*;\s*/g, "; ").trim();
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// Converts "/v1/jobs/{id}" to a pattern for paths.
function patternOf(template) {
  const parts = template.split(/\{[^}]*\}/).map(escaped);
  return new RegExp(`^${parts.join("[^/]+")}$`);
}

// Parses an event stream as a client does, with data as JSON.
export function readEvents(text) {
  const blocks = text.replace(/\r\n?/g, "\n").split("\n\n");
  blocks.pop(); // empty, or an event that was cut off
  const events = [];
  for (const block of blocks) {
    const event = {};
    const data = [];
    for (const line of block.split("\n")) {
      const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line);
      if (name === "data") {
        data.push(value);
      } else if (name !== "" && name !== "retry") {
        event[name] = value;
      }
    }
    if (data.length > 0) {
      events.push({...event, data: JSON.parse(data.join("\n"))});
    }
  }
  return events;
}

// ajv supports OpenAPI's `discriminator`, but not its mapping, which only repeats the constants.
function withoutMappings(value) {
  if (Array.isArray(value)) {
    return value.map(withoutMappings);
  }
  if (value === null || typeof value !== "object") {
    return value;
  }
  return Object.fromEntries(Object.entries(value).map(([key, member]) =>
    [key, key === "discriminator" ? {propertyName: member.propertyName} : withoutMappings(member)]));
}

const lastOf = (pointer) => pointer.split("/").pop();

export async function validator(file = OPENAPI) {
  const document = parseYaml(await readFile(file, "utf8"));
  const ajv = new Ajv({strict: true, strictRequired: false, allowUnionTypes: true, allErrors: true,
    discriminator: true});
  addFormats(ajv);
  ajv.addVocabulary(Object.keys(document)); // of the document itself, which is not a schema
  ajv.addSchema(withoutMappings(document), "openapi", undefined, false);

  const resolve = (value) => (value?.$ref
    ? value.$ref.slice(2).split("/").reduce((at, key) => at[key.replace(/~1/g, "/")], document)
    : value);
  const compiled = new Map();
  const errorsAt = (pointer, value) => {
    if (!compiled.has(pointer)) {
      compiled.set(pointer, ajv.compile({$ref: `openapi#${encodeURI(pointer)}`}));
    }
    const validate = compiled.get(pointer);
    return validate(value) ? [] : validate.errors;
  };
  const demand = (pointer, value, what) => {
    const errors = errorsAt(pointer, value);
    if (errors.length > 0) {
      const told = errors.slice(0, 5).map(({instancePath, message, params}) =>
        `  ${instancePath || "(top)"} ${message} ${JSON.stringify(params)}`);
      const shown = JSON.stringify(value);
      throw new Error(`${what} does not match ${lastOf(pointer)}:\n${told.join("\n")}\n`
        + `  in ${shown.length > 1000 ? `${shown.slice(0, 1000)}...` : shown}`);
    }
  };

  const patterns = Object.keys(document.paths).map((template) => ({template, pattern: patternOf(template)}));
  // A path that does not exist gets the response of any unknown path below /assets/.
  const NOWHERE = "/assets/{name}";

  // Returns the response object and its JSON pointer; throws if there is none.
  function find(method, path, status, what) {
    const template = patterns.find(({pattern}) => pattern.test(path))?.template
      ?? (status === 404 ? NOWHERE : undefined);
    if (template === undefined) {
      throw new Error(`${what}: the path is not documented`);
    }
    const item = document.paths[template];
    // An undocumented method: 405, or 404 if the path matches only by its pattern.
    const verbs = item[method] ? [method] : ["get", "post"].filter((each) => item[each]);
    const [verb] = verbs;
    if (!item[method] && status !== 405 && status !== 404) {
      throw new Error(`${what}: the method is not documented`);
    }
    const responses = item[verb].responses;
    if (!responses[status]) {
      throw new Error(`${what}: the status is not documented, only ${Object.keys(responses)}`);
    }
    const inline = `/paths/${template.replace(/\//g, "~1")}/${verb}/responses/${status}`;
    const pointer = responses[status].$ref?.slice(1) ?? inline;
    verbs.forEach((each) => check.used.add(`${each.toUpperCase()} ${template} ${status}`));
    return {response: resolve(responses[status]), pointer};
  }

  function checkHeaders(headers, documented, what) {
    const names = new Map(Object.keys(documented).map((name) => [name.toLowerCase(), name]));
    for (const [name, value] of headers) {
      if (names.has(name)) {
        const header = documented[names.get(name)];
        const pointer = header.$ref?.slice(1);
        if (pointer) {
          demand(`${pointer}/schema`, value, `${what}: header ${name}`);
        }
      } else if (!PLAIN_HEADERS.has(name)) {
        throw new Error(`${what}: header ${name} is not documented`);
      }
    }
    for (const [lower, name] of names) {
      if (resolve(documented[name]).required && !headers.has(lower)) {
        throw new Error(`${what}: header ${name} is missing`);
      }
    }
  }

  function checkBody(type, body, pointer, what) {
    const text = typeof body === "string" ? body : Buffer.from(body).toString("utf8");
    const schema = resolve(pointer.slice(1).split("/").reduce(
      (at, key) => at[key.replace(/~1/g, "/").replace(/~0/g, "~")], document));
    if (/[/+]json$/.test(type)) {
      demand(pointer, JSON.parse(text), what);
    } else if (schema.contentSchema) {
      demand(`${pointer}/contentSchema`, readEvents(text), what);
    } else if (type === "application/x-npy") {
      if (!text.slice(1).startsWith("NUMPY")) {
        throw new Error(`${what} is no NumPy file`);
      }
    } else {
      demand(pointer, text, what);
    }
  }

  function check({method, path, status, contentType, headers, body}) {
    const isHead = method.toUpperCase() === "HEAD";
    const verb = isHead ? "get" : method.toLowerCase();
    const {pathname} = new URL(path, "http://tally");
    const what = `${method} ${pathname} ${status}`;
    const {response, pointer} = find(verb, pathname, status, what);
    const lower = headers && new Map((headers[Symbol.iterator] ? [...headers] : Object.entries(headers))
      .map(([name, value]) => [name.toLowerCase(), value]));
    if (lower) {
      checkHeaders(lower, response.headers ?? {}, what);
    }
    const type = contentType ?? lower?.get("content-type");
    if (!response.content) {
      if (type !== undefined || (body !== undefined && body.length > 0)) {
        throw new Error(`${what} has no body, but ${type} came`);
      }
      return;
    }
    const documented = Object.keys(response.content).find((each) =>
      type !== undefined && type !== null && normalType(each) === normalType(type));
    if (!documented) {
      throw new Error(`${what}: ${type} is not documented, only ${Object.keys(response.content)}`);
    }
    if (body !== undefined && !isHead) {
      const at = `${pointer}/content/${documented.replace(/~/g, "~0").replace(/\//g, "~1")}/schema`;
      checkBody(documented, body, at, what);
    }
  }
  check.used = new Set();
  check.document = document;
  check.resolve = resolve;
  check.schema = (name) => (value) => errorsAt(`/components/schemas/${name}`, value);
  check.fetch = async (url, options = {}) => {
    const response = await fetch(url, options);
    const body = Buffer.from(await response.arrayBuffer());
    check({method: options.method ?? "GET", path: url, status: response.status,
      headers: response.headers, body});
    return {status: response.status, headers: response.headers, body, text: body.toString("utf8")};
  };
  return check;
}
