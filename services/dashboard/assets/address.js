// address: what the address of a page says beyond its name: #/workers?cursor=...&cursor=...

// Splits a fragment: {parts: of its path, query: a URLSearchParams}.
export function splitAddress(hash) {
  const [path, ...query] = hash.replace(/^#?\/?/, "").split("?");
  const parts = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return "";
    }
  });
  return {parts, query: new URLSearchParams(query.join("?"))};
}

// Puts name-value pairs behind the address of the current page, as a step to which the browser can go back. Does not leave the
// page.
export function remember(pairs) {
  const page = location.hash.split("?")[0] || "#/";
  const query = String(new URLSearchParams(pairs));
  const hash = query === "" ? page : `${page}?${query}`;
  if (hash !== (location.hash || "#/")) {
    history.pushState(null, "", hash);
  }
}

// The pages of a list up to the current one, by the cursors with which they are requested: null for the first. The address has
// them all, because a list has no cursor to its previous page.
export const cursorsIn = (query) => [null, ...query.getAll("cursor")];
export const cursorsTo = (cursors) => cursors.slice(1).map((cursor) => ["cursor", cursor]);
