// The data of the report, and small helpers.

const report = JSON.parse(document.getElementById("report-data").textContent);
const workspace = document.getElementById("graphs");

const positions = (entries) => new Map(entries.map((entry, i) => [entry.name, i]));
const opAt = positions(report.ops);
const groupAt = positions(report.groups);
const kernelAt = positions(report.kernels);
const groupOf = report.ops.map((op) => groupAt.get(op.group));

/** For each op the edges that it is an end of, and the pairs that it is a reader of. */
const edgesOf = report.ops.map(() => []);
report.edges.forEach((edge, i) => {
  edgesOf[opAt.get(edge.producer)].push(i);
  edgesOf[opAt.get(edge.consumer)].push(i);
});
const siblingsOf = report.ops.map(() => []);
report.siblings.forEach((pair, i) => {
  for (const name of [pair.first, pair.second]) {
    if (opAt.has(name)) siblingsOf[opAt.get(name)].push(i);
  }
});

const styleOf = (reason) => (reason.is_free ? "free" : reason.verdict);
const reasonClass = (reason) => report.reasons[`${styleOf(reason)} ${reason.code}`];
const isRefused = (reason) => styleOf(reason) === "refused";
const pairText = (edge) => `${edge.producer} → ${edge.consumer}`;

/** An element with attributes and children; text is always set as text. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

/** An SVG element. */
function drawn(tag, attributes = {}) {
  const made = document.createElementNS(workspace.querySelector("svg").namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** A short line that is drawn as edges with this reason are. */
function swatch(reason) {
  const line = drawn("svg", { class: "swatch", width: 26, height: 10, "aria-hidden": "true" });
  line.append(drawn("path", { class: `edge ${styleOf(reason)} ${reasonClass(reason)}`, d: "M1 5H25" }));
  return line;
}

/** Bytes with three digits, as the page writes them elsewhere. */
function amount(count) {
  if (count === null) return "unknown";
  if (count < 0) return `−${amount(-count)}`;
  for (const [unit, factor] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (count < factor) continue;
    const value = count / factor;
    return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${unit}`;
  }
  return `${count} B`;
}

/** Bytes of shared memory, which comes in units of 1024. */
const binary = (count) => (count < 1024 ? `${count} B` : `${Number((count / 1024).toPrecision(4))} KiB`);

const kindWords = (kind) => kind.toLowerCase().replaceAll("_", " ");
const bytesOf = (moved) => moved.bytes_read + moved.bytes_written;
const counted = (count, unit) => `${count} ${unit}${count === 1 ? "" : "s"}`;
