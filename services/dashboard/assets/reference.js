// reference: Table I of the paper, by the paper's formula: bits up per client, and bits down per
// broadcast.

const row = (name, up, down) => ({name, uplink: up, downlink: down});

export const REFERENCES = {
  synthetic: {
    title: "synthetic",
    rows: [
      row("Minibatch-SGD", 38400, 38400), row("FedAvg", 19200, 19200), row("FedPAQ", 2440, 19200),
      row("FedCOM", 2440, 19200), row("CEAL", 263.3, 288.6),
    ],
  },
  mnist: {
    title: "MNIST",
    rows: [
      row("Minibatch-SGD", 5_017_600, 5_017_600), row("FedAvg", 5_017_600, 5_017_600),
      row("FedPAQ", 627_840, 5_017_600), row("FedCOM", 627_840, 5_017_600), row("CEAL", 110_000, 260_000),
    ],
  },
};

// Methods with the same figure share a line: [{name: "FedPAQ, FedCOM", value: 2440}].
export function referenceLines(key, direction) {
  const names = new Map();
  for (const each of REFERENCES[key]?.rows ?? []) {
    names.set(each[direction], [...(names.get(each[direction]) ?? []), each.name]);
  }
  return [...names].map(([value, list]) => ({name: list.join(", "), value}));
}
