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

const SIZES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "KB"], [0, "B"]]; // 1 KB is 1,000 bytes
const THREE = new Intl.NumberFormat("en-US", {maximumSignificantDigits: 3});

// A number of bits as bytes with three digits: "40.4 MB".
export function size(bits) {
  if (!isNumber(bits)) {
    return NOTHING;
  }
  const bytes = Number((bits / 8).toPrecision(3)); // 999,999 bytes are 1 MB
  const [unit, name] = SIZES.find(([each]) => bytes >= each) ?? SIZES.at(-1);
  return `${THREE.format(bytes / (unit || 1))}\u00a0${name}`;
}

// Both: "323,483,200 bits (40.4 MB)".
export const bitsAndSize = (bits) => `${tenths(bits)}\u00a0bits (${size(bits)})`;

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

// A short time with three digits: "0.0123 s".
export function seconds(ms) {
  if (!isNumber(ms)) {
    return NOTHING;
  }
  return ms < 0.1 ? "<\u00a00.0001\u00a0s" : `${THREE.format(ms / 1000)}\u00a0s`;
}

// A long time with two units: "42 s", "3 h 5 min"; below ten seconds, with three digits.
export function span(ms) {
  if (!isNumber(ms) || ms < 10_000) {
    return ms === 0 ? "0\u00a0s" : seconds(ms);
  }
  const first = UNITS.findIndex(([unit]) => ms >= unit);
  const [unit] = UNITS[first];
  const rest = ms % unit;
  const more = first + 1 < UNITS.length ? Math.floor(rest / UNITS[first + 1][0]) : 0;
  return duration(ms) + (more > 0 ? ` ${more}\u00a0${UNITS[first + 1][1]}` : "");
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
