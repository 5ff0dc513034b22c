// sse: splits the text of an event stream, given piece by piece, into events (HTML standard,
// section 9.2).

const MAX_PENDING = 8 * 1024 * 1024; // characters per event; the coordinator sends a few thousand

export class EventParser {
  #pending = "";
  #afterReturn = false; // the last piece ended with CR, so a following LF belongs to it
  #type = "";
  #data = [];
  #size = 0;
  lastId = "";

  // Returns the events completed by the piece: [{type, data, id}].
  push(piece) {
    if (this.#afterReturn && piece.startsWith("\n")) {
      piece = piece.slice(1);
    }
    if (piece !== "") {
      this.#afterReturn = piece.endsWith("\r");
    }
    const lines = (this.#pending + piece).split(/\r\n|\r|\n/);
    this.#pending = lines.pop();
    const events = [];
    for (const line of lines) {
      const event = this.#line(line);
      if (event !== null) {
        events.push(event);
      }
    }
    if (this.#pending.length + this.#size > MAX_PENDING) {
      throw new Error("an event of the stream is too long");
    }
    return events;
  }

  #line(line) {
    if (line === "") {
      return this.#dispatch();
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon); // a leading ":" marks a comment and gives the name ""
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (name === "event") {
      this.#type = value;
    } else if (name === "data") {
      this.#data.push(value);
      this.#size += value.length;
    } else if (name === "id" && !value.includes("\0")) {
      this.lastId = value;
    }
    return null;
  }

  #dispatch() {
    const event = this.#data.length === 0
      ? null
      : {type: this.#type || "message", data: this.#data.join("\n"), id: this.lastId};
    this.#type = "";
    this.#data = [];
    this.#size = 0;
    return event;
  }
}
