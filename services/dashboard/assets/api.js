// api: requests to the coordinator with the admin token, and the state of the connection.
//
// Paths have no leading slash: they are relative to the page, because a proxy may serve the coordinator below a prefix.

const TOKEN = `tally-admin-token ${location.pathname}`; // in session storage: gone with the tab
const TIMEOUT_MS = 30_000;

// The coordinator responded with an error; `problem` is its problem+json, or {} if it had none.
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the coordinator answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

// There was no response.
export class ConnectionError extends Error {}

export const events = new EventTarget(); // "connection" (detail: whether there is one), "token"
let isConnected = true;
let askForToken = null; // (message) => Promise<string or null>
let asking = null;
let isDeclined = false; // the user closed the dialog, so it does not open again by itself

export function setTokenDialog(ask) {
  askForToken = ask;
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

export function isTokenWanted() {
  return isDeclined;
}

function storeToken(token) {
  if (token === null) {
    sessionStorage.removeItem(TOKEN);
  } else {
    sessionStorage.setItem(TOKEN, token);
  }
  events.dispatchEvent(new Event("token"));
}

export function forgetToken() {
  storeToken(null);
}

// Opens only one dialog, however many requests were refused. Resolves to whether there is a token
// to try.
export function enterToken(message) {
  asking ??= askForToken(message)
    .then((token) => {
      isDeclined = token === null;
      if (token !== null) {
        storeToken(token);
      } else {
        events.dispatchEvent(new Event("token"));
      }
      return token !== null;
    })
    .finally(() => {
      asking = null;
    });
  return asking;
}

function setConnected(now) {
  if (now !== isConnected) {
    isConnected = now;
    events.dispatchEvent(new CustomEvent("connection", {detail: now}));
  }
}

async function readProblem(response) {
  try {
    const problem = await response.json();
    return problem !== null && typeof problem === "object" ? problem : {};
  } catch {
    return {};
  }
}

function isAborted(signal) {
  return signal !== undefined && signal !== null && signal.aborted;
}

async function attempt(path, options) {
  const headers = new Headers(options.headers);
  const token = sessionStorage.getItem(TOKEN);
  if (token !== null) {
    headers.set("Authorization", `Bearer ${token}`);
  }
  const timeout = new AbortController();
  const timer = setTimeout(() => timeout.abort(), TIMEOUT_MS);
  const giveUp = () => timeout.abort();
  options.signal?.addEventListener("abort", giveUp, {once: true});
  try {
    const response = await fetch(path, {
      method: options.method ?? "GET", headers, body: options.body, signal: timeout.signal,
      cache: "no-store", credentials: "omit", redirect: "error",
    });
    if (response.status === 503) {
      throw new ConnectionError("the coordinator is not ready");
    }
    setConnected(true);
    return {response, token};
  } catch (error) {
    if (isAborted(options.signal)) {
      throw error;
    }
    setConnected(false);
    throw error instanceof ConnectionError ? error : new ConnectionError("no connection");
  } finally {
    clearTimeout(timer);
    if (!options.keepSignal) {
      options.signal?.removeEventListener("abort", giveUp);
    }
  }
}

// Whether a request was refused because its token is missing, invalid or has another role.
export function isRefused(status) {
  return status === 401 || status === 403;
}

// Returns the Response of a successful request. Options: method, headers, body, signal, keepSignal
// (the signal also aborts reading the body). Errors: ApiError, ConnectionError, and whatever fetch
// throws once the signal is aborted.
export async function request(path, options = {}) {
  for (;;) {
    const {response, token} = await attempt(path, options);
    if (response.ok) {
      return response;
    }
    const problem = await readProblem(response);
    if (!isRefused(response.status)) {
      throw new ApiError(response.status, problem);
    }
    if (isAborted(options.signal)) {
      throw new ApiError(response.status, problem);
    }
    if (token !== sessionStorage.getItem(TOKEN)) {
      continue; // another request has obtained a new token meanwhile
    }
    if (token !== null) {
      forgetToken();
    }
    if (isDeclined || !(await enterToken(token === null ? "" : "The coordinator refused this token."))) {
      throw new ApiError(response.status, problem);
    }
  }
}

async function readJson(response) {
  try {
    return await response.json();
  } catch {
    setConnected(false);
    throw new ConnectionError("the answer broke off");
  }
}

export async function getJson(path, signal) {
  return readJson(await request(path, {signal, headers: {Accept: "application/json"}}));
}

export async function post(path, body, headers, signal) {
  return readJson(await request(path, {method: "POST", body, headers, signal}));
}

export const jobPath = (id, rest = "") => `v1/jobs/${encodeURIComponent(id)}${rest}`;

// Waits for `ms`; resolves early, without throwing, if the signal is aborted.
export function pause(ms, signal) {
  return new Promise((resolve) => {
    if (isAborted(signal)) {
      resolve();
      return;
    }
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    }
    signal?.addEventListener("abort", done, {once: true});
  });
}

// The delay after so many failures: half a second, doubled with each further one, at most 5 s.
export const backoff = (failures) => Math.min(5000, 250 * 2 ** Math.min(failures, 10));

// Waits until a token has been entered or the signal is aborted.
export function tokenEntered(signal) {
  return new Promise((resolve) => {
    const look = () => {
      if (hasToken() || isAborted(signal)) {
        events.removeEventListener("token", look);
        signal?.removeEventListener("abort", look);
        resolve();
      }
    };
    events.addEventListener("token", look);
    signal?.addEventListener("abort", look);
    look();
  });
}

// Calls `work` every `ms` until the signal is aborted: less often while there is no connection, and
// not at all while a token is required. Any other error is passed to `onError` and ends the
// repetition.
export async function repeat(work, ms, signal, onError) {
  let failures = 0;
  while (!isAborted(signal)) {
    try {
      const goOn = await work();
      failures = 0;
      if (goOn === false) {
        return;
      }
      await pause(ms, signal);
    } catch (error) {
      if (isAborted(signal)) {
        return;
      }
      if (error instanceof ConnectionError) {
        await pause(backoff(++failures), signal);
      } else if (error instanceof ApiError && isRefused(error.status)) {
        await tokenEntered(signal);
      } else {
        onError(error);
        return;
      }
    }
  }
}
