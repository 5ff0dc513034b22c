// format: numbers and times for people.

const INTEGER = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});
const TENTHS = new Intl.NumberFormat("en-US", {maximumFractionDigits: 1});
const SIX = new Intl.NumberFormat("en-US", {maximumSignificantDigits: 6});
const COMPACT = new Intl.NumberFormat("en-US", {notation: "compact", maximumSignificantDigits: 3});
export const NOTHING = "\u2013"; // an en dash

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export const integer = (value) => (isNumber(value) ? INTEGER.format(value) : NOTHING);
export const tenths = (value) => (isNumber(value) ? TENTHS.format(value) : NOTHING);

// Six significant digits, with an exponent where that is shorter.
export function real(value) {
  if (!isNumber(value)) {
    return NOTHING;
  }
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e9 || size < 1e-4) ? value.toExponential(4) : SIX.format(value);
}

// The regret is null for a job whose f(x*) is not known.
export const regret = (value) => (isNumber(value) ? real(value) : "unknown");

// Describes a job's quality for a tile or a cell: the regret, or the loss if f(x*) is not known.
export function quality(job) {
  if (isNumber(job.cumulative_regret) || !isNumber(job.loss)) {
    return {text: regret(job.cumulative_regret), title: job.cumulative_regret ?? ""};
  }
  return {text: `loss ${real(job.loss)}`, title: job.loss};
}

// Four digits, where there is little room.
export const short = (value) => (isNumber(value) && value !== 0 ? String(Number(value.toPrecision(4))) : integer(value));

// For the ticks of an axis.
export function compact(value) {
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e15 || size < 1e-3) ? value.toExponential(0) : COMPACT.format(value);
}

const UNITS = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1000, "s"],
];

// "42 s", "5 min", "3 h", "12 d"
export function duration(ms) {
  if (!isNumber(ms)) {
    return NOTHING;
  }
  for (const [unit, name] of UNITS) {
    if (ms >= unit) {
      return `${Math.floor(ms / unit)}\u00a0${name}`;
    }
  }
  return ms < 0 ? "0\u00a0s" : `${Math.floor(ms)}\u00a0ms`;
}

// The age of something that is not exact to the millisecond: below a second, "0 s".
export const age = (ms) => (isNumber(ms) ? duration(Math.max(0, Math.floor(ms / 1000) * 1000)).replace("0\u00a0ms", "0\u00a0s") : NOTHING);

export function moment(ms) {
  return isNumber(ms) ? new Date(ms).toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC") : NOTHING;
}

// [0, 1, 2, 5] -> "0\u20132, 5"
export function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const parts = [];
  for (let i = 0; i < sorted.length; ) {
    let j = i;
    while (j + 1 < sorted.length && sorted[j + 1] === sorted[j] + 1) {
      j++;
    }
    parts.push(i === j ? `${sorted[i]}` : `${sorted[i]}\u2013${sorted[j]}`);
    i = j + 1;
  }
  return parts.join(", ");
}

export const plural = (n, word) => `${integer(n)} ${word}${n === 1 ? "" : "s"}`;
