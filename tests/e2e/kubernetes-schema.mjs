// Validates Kubernetes objects against the schemas of its API, version 1.27, which come with the
// package kubernetes-models.
//
//   import {validate} from "./kubernetes-schema.mjs";
//   validate(document);                 throws an Error that says what is wrong
//
// Misspelt fields are refused, as by the API server (fieldValidation=Strict); the package alone
// would accept fields that the schema does not name.
import {createRequire} from "node:module";

const require = createRequire(import.meta.url);
const validator = require("@kubernetes-models/validate");

// Objects with named members have no others, at any depth.
function closed(schema) {
  if (Array.isArray(schema)) {
    return schema.map(closed);
  }
  if (schema === null || typeof schema !== "object") {
    return schema;
  }
  const copy = Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, closed(value)]));
  // If "type" is not a string, this is not a schema but a list of members, one of which is called
  // "type".
  return typeof schema.type === "string" && schema.properties && !("additionalProperties" in schema)
    ? {...copy, additionalProperties: false} : copy;
}

// kustomize wraps long base64. The API accepts that, but the schema's format does not.
function unfolded(document) {
  return document.kind !== "Secret" ? document : {...document, data: Object.fromEntries(
    Object.entries(document.data ?? {}).map(([key, value]) => [key, value.replace(/\s/g, "")]))};
}

const register = validator.register;
validator.register = (id, schema) => register(id, closed(schema));

export function validate(document) {
  const {apiVersion, kind} = document;
  const what = `${apiVersion} ${kind} ${document.metadata?.name}`;
  let Model;
  try {
    ({[kind]: Model} = require(`kubernetes-models/${apiVersion}/${kind}`));
  } catch {
    throw new Error(`${what}: there is no such kind`);
  }
  try {
    new Model(unfolded(document)).validate();
  } catch (error) {
    throw new Error(`${what}: ${error.message}`);
  }
}
