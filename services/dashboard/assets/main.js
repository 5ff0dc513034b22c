// main: addresses (#/?status=..., #/workers, #/job/ID, #/compare/ID,ID, #/sweep/LABEL, #/submit, #/submit/ID), the header and the banner.

import {remember, splitAddress} from "./address.js";
import {ApiError, enterToken, events, forgetToken, hasToken, isTokenWanted, setTokenDialog} from "./api.js";
import {askForToken} from "./dialogs.js";
import {h, setHidden, setText} from "./dom.js";
import * as comparePage from "./page-compare.js";
import * as jobPage from "./page-job.js";
import * as listPage from "./page-list.js";
import * as sweepPage from "./page-sweep.js";
import * as submitPage from "./page-submit.js";
import * as workersPage from "./page-workers.js";

const ID = /^[A-Za-z0-9_-]{1,31}$/;
const LABEL = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}(=.{0,63})?$/u; // as in api/openapi.yaml
const main = document.getElementById("main");
const banner = document.getElementById("banner");
let leave = () => {};

// Returns the page of an address, {page, name, ...arguments of its mount()}, or null.
function pageAt(hash) {
  const {parts, query} = splitAddress(hash);
  if (parts.length === 1 && parts[0] === "") {
    return {page: listPage, name: "list", query};
  }
  if (parts.length === 1 && parts[0] === "workers") {
    return {page: workersPage, name: "workers", query};
  }
  if (parts.length === 1 && parts[0] === "submit") {
    return {page: submitPage, name: "submit"};
  }
  if (parts.length === 2 && parts[0] === "submit" && ID.test(parts[1])) {
    return {page: submitPage, name: "submit", from: parts[1]};
  }
  if (parts.length === 2 && parts[0] === "job" && ID.test(parts[1])) {
    return {page: jobPage, name: "job", id: parts[1], query};
  }
  if (parts.length === 2 && parts[0] === "compare") {
    const ids = [...new Set(parts[1].split(","))];
    if (ids.every((id) => ID.test(id))) {
      return {page: comparePage, name: "compare", ids, query};
    }
  }
  if (parts.length === 2 && parts[0] === "sweep" && LABEL.test(parts[1])) {
    return {page: sweepPage, name: "sweep", label: parts[1], query};
  }
  return null;
}

function showError(title, text) {
  main.replaceChildren(h("div", {class: "page-head"}, h("h1", {}, title)), h("p", {class: "error", role: "alert"}, text),
    h("p", {}, h("a", {href: "#/"}, "Back to the jobs")));
}

function setTitle(text) {
  const title = text === "" ? "Tally" : `${text} \u00b7 Tally`;
  if (document.title !== title) {
    document.title = title;
  }
}

function navigate(isFirst) {
  leave();
  const gone = new AbortController();
  let close;
  leave = () => {
    gone.abort();
    close?.();
  };
  main.replaceChildren();
  setTitle("");
  const where = pageAt(location.hash);
  for (const link of document.querySelectorAll("nav [data-page]")) {
    if (link.dataset.page === where?.name) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
  if (where === null) {
    showError("No such page", "The address does not name a page of the dashboard.");
  } else {
    const onError = (error) => {
      if (!gone.signal.aborted) {
        leave();
        showError(error instanceof ApiError && error.status === 404 ? "No such job" : "That did not work", error.message);
      }
    };
    close = where.page.mount(main, {...where, signal: gone.signal, remember, onError, setTitle});
  }
  if (!isFirst) {
    window.scrollTo(0, 0);
    main.focus({preventScroll: true});
  }
}

// The button is shown only if it is useful: if there is a token, or after a request was refused without
// one.
function showToken() {
  const button = document.getElementById("token");
  setHidden(button, !hasToken() && !isTokenWanted());
  setText(button, hasToken() ? "Forget token" : "Enter token");
  button.classList.toggle("wanted", isTokenWanted() && !hasToken());
}

function showTheme() {
  setText(document.getElementById("theme"), `Theme: ${window.tallyTheme.name}`);
}

setTokenDialog(askForToken);
events.addEventListener("token", showToken);
events.addEventListener("connection", ({detail}) => {
  setText(banner, detail ? "" : "Connection lost, retrying\u2026");
  banner.classList.toggle("shown", !detail);
});
document.getElementById("token").addEventListener("click", () => {
  if (hasToken()) {
    forgetToken();
  } else {
    enterToken("");
  }
});
document.getElementById("theme").addEventListener("click", () => window.tallyTheme.next());
window.addEventListener("tally-theme", showTheme);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is the page's address
  main.focus();
});
window.addEventListener("hashchange", () => navigate(false));
showToken();
showTheme();
navigate(true);
