// The panel with all about what is selected.

const details = document.getElementById("details");

const button = (kind, index, text) =>
  element("button", { type: "button", class: "link name", "data-select": `${kind}:${index}` }, text);
const opButton = (name) => (opAt.has(name) ? button("op", opAt.get(name), name) : name);
const groupDot = (index) => element("i", { class: `dot ${report.colours[index]}` });
const heading = (text) => element("h4", {}, text);

/** Name and value pairs; those without a value are left out. */
function facts(...pairs) {
  const list = element("dl");
  for (const [name, ...values] of pairs) {
    if (values.every((value) => value === "" || value === null || value === undefined)) continue;
    list.append(element("dt", {}, name), element("dd", {}, ...values.map(asNode)));
  }
  return list;
}

const asNode = (value) => (value instanceof Node ? value : String(value));

function table(titles, rows) {
  const css = (i) => (titles[i].endsWith("#") ? { class: "number" } : {});
  const line = (tag, cells) => {
    const made = cells.map((cell, i) => element(tag, css(i), asNode(cell)));
    return element("tr", {}, ...made);
  };
  const head = line("th", titles.map((title) => title.replace("#", "")));
  return element(
    "table", {},
    element("thead", {}, head),
    element("tbody", {}, ...rows.map((row) => line("td", row))),
  );
}

/** Names with commas between. */
function listed(names, make) {
  return names.flatMap((name, i) => (i ? [", ", make(name)] : [make(name)]));
}

/** Element type and shape, like float32[1, 128]; a shape that is not known is left out. */
const typeOf = ({ shape, dtype }) => (shape.length ? `${dtype}[${shape.join(", ")}]` : dtype);
const tensorTable = (tensors) =>
  table(["Tensor", "Type", "Bytes#"], tensors.map((t) => [t.name, typeOf(t), amount(t.nbytes)]));

const movedTable = (rows) =>
  table(
    ["", "Kernels#", "Read#", "Written#"],
    Object.entries(rows).map(([name, moved]) => [
      name, moved.kernels, amount(moved.bytes_read), amount(moved.bytes_written),
    ]),
  );

function tag(reason) {
  const words = reason.is_free ? "no cost" : reason.verdict;
  return element(
    "p", { class: "tag" },
    swatch(reason), element("span", {}, words), reason.code === words ? "" : element("code", {}, reason.code),
  );
}

/** Verdict, message, and what it would take. */
function reasonParts(reason, tried) {
  const figures = Object.entries(reason.figures).map(([name, value]) => `${name} = ${value}`);
  const limits = Object.entries(reason.limits_needed).map(([name, value]) => `${name} = ${value}`);
  return [
    tag(reason),
    element("p", { class: "message" }, reason.message),
    facts(
      ["Would fuse if", reason.would_fuse_if],
      ["Scarce", reason.resource],
      ["Limits needed", limits.join(", ")],
      ["Figures", figures.join(", ")],
      ["Tried together", ...listed(tried, opButton)],
    ),
  ];
}

function edgeItems(edges) {
  return element(
    "ul", {},
    ...edges.map((i) => {
      const { reason } = report.edges[i];
      return element(
        "li", {},
        swatch(reason), button("edge", i, pairText(report.edges[i])), element("code", { class: "dim" }, reason.code),
      );
    }),
  );
}

function siblingItems(siblings) {
  return element(
    "ul", {},
    ...siblings.map((i) => {
      const { first, second, reason } = report.siblings[i];
      return element(
        "li", {},
        swatch(reason), button("sibling", i, `${first}, ${second}`), element("code", { class: "dim" }, reason.code),
      );
    }),
  );
}

/** A source that is only put into the page once it is opened. */
function source(title, text) {
  if (!text) return "";
  const fold = element("details", {}, element("summary", {}, title));
  fold.addEventListener("toggle", () => fold.append(element("pre", { tabindex: "0" }, text)), { once: true });
  return fold;
}

const GROUP_WORDS = {
  fused: "one fused kernel",
  single: "an op by itself",
  view: "a view: no kernel",
  other: "no kernel that is made here",
};

function sourceOf(figures) {
  if (figures.compiler) return `compiled by ${figures.compiler}`;
  return figures.registers === null ? "registers unknown" : "estimated";
}

function kernelParts(kernel) {
  const f = kernel.figures;
  const known = (value, words = value) => (value === null ? null : words);
  return [
    heading(`Resources, ${sourceOf(f)}`),
    facts(
      ["Registers", known(f.registers)],
      ["Spilled", known(f.spill_bytes, amount(f.spill_bytes))],
      ["Shared memory", binary(f.shared_bytes)],
      ["Threads a block", known(f.threads)],
      ["Occupancy", known(f.occupancy, `${Math.round(100 * f.occupancy)} %`)],
      ["Limited by", f.limiter],
      ["Recomputation", kernel.recompute_factor > 1 ? `${kernel.recompute_factor.toFixed(2)} times the arithmetic` : "none"],
      ["Schedule", kernel.rule],
      ["Layout", kernel.layout],
    ),
    ...kernel.notes.map((note) => element("p", {}, note)),
    source("TVMScript", kernel.tvmscript),
    source("CUDA", kernel.cuda),
  ];
}

// -- one function for each kind of selection ----------------------------------------------------

function groupParts(index) {
  const group = report.groups[index];
  const kernel = report.kernels[kernelAt.get(group.kernel)];
  const saved = bytesOf(group.before) - bytesOf(group.after);
  return [
    facts(
      ["Became", GROUP_WORDS[group.kind]],
      [counted(group.ops.length, "op"), ...listed(group.ops, opButton)],
    ),
    ...(group.kind === "view" ? [] : [heading("Global memory"), movedTable({ before: group.before, after: group.after })]),
    saved ? element("p", {}, `Saves ${amount(saved)} a call.`) : "",
    ...(group.storage.length
      ? [
          heading("Where intermediates live"),
          table(
            ["Tensor", "Type", "Place"],
            group.storage.map(({ tensor, place }) => [tensor.name, typeOf(tensor), place]),
          ),
        ]
      : []),
    ...(kernel ? kernelParts(kernel) : []),
  ];
}

function crossing(index) {
  const group = report.groups[index];
  const edges = new Set(group.ops.flatMap((name) => edgesOf[opAt.get(name)]));
  return [...edges].filter((i) => {
    const { producer, consumer } = report.edges[i];
    return groupOf[opAt.get(producer)] !== groupOf[opAt.get(consumer)];
  });
}

const PANELS = {
  op({ index }) {
    const op = report.ops[index];
    const group = groupOf[index];
    const siblings = siblingsOf[index];
    return [
      element("h3", {}, op.name),
      facts(
        ["Calls", op.function],
        ["Made from", op.origin],
        ["Kind", kindWords(op.kind)],
        ["In", op.block],
        ["Reads from outside", op.inputs.join(", ")],
        ["Result", op.is_output ? "leaves the graph" : ""],
      ),
      heading("Global memory"),
      movedTable({ "by itself": op.before }),
      heading(counted(edgesOf[index].length, "edge")),
      edgeItems(edgesOf[index]),
      ...(siblings.length ? [heading("Readers of the same tensor"), siblingItems(siblings)] : []),
      element("h4", {}, "Group"),
      element("h3", {}, groupDot(group), button("group", group, op.group)),
      ...groupParts(group),
    ];
  },

  group({ index }) {
    const edges = crossing(index);
    return [
      element("h3", {}, groupDot(index), report.groups[index].name),
      ...groupParts(index),
      heading(`${counted(edges.length, "edge")} to other groups`),
      edgeItems(edges),
    ];
  },

  edge({ index }) {
    const edge = report.edges[index];
    const end = (name) => {
      const at = groupOf[opAt.get(name)];
      return [opButton(name), " in ", button("group", at, report.groups[at].name)];
    };
    return [
      element("h3", {}, pairText(edge)),
      ...reasonParts(edge.reason, edge.tried),
      heading("What is passed on"),
      tensorTable(edge.tensors),
      heading("Ends"),
      facts(["Producer", ...end(edge.producer)], ["Consumer", ...end(edge.consumer)]),
    ];
  },

  sibling({ index }) {
    const pair = report.siblings[index];
    return [
      element("h3", {}, `${pair.first}, ${pair.second}`),
      ...reasonParts(pair.reason, pair.tried),
      heading("Ends"),
      facts(["Both read", opButton(pair.tensor)], ["First", opButton(pair.first)], ["Second", opButton(pair.second)]),
    ];
  },

  link({ edges }) {
    return [element("h3", {}, `${edges.length} edges between two groups`), edgeItems(edges)];
  },

  reason({ css }) {
    const has = ({ reason }) => reasonClass(reason) === css;
    const positionsOf = (pairs) => pairs.flatMap((pair, i) => (has(pair) ? [i] : []));
    const [edges, siblings] = [positionsOf(report.edges), positionsOf(report.siblings)];
    const { reason } = report.edges[edges[0]];
    return [
      element("h3", {}, reason.code),
      tag(reason),
      heading(counted(edges.length, "edge")),
      edgeItems(edges),
      ...(siblings.length ? [heading("Readers of the same tensor"), siblingItems(siblings)] : []),
    ];
  },

  none() {
    const keys = [
      ["/", "search; Enter goes to the next"],
      ["Tab", "into a graph"],
      ["↑ ↓ ← →", "to producer, consumer, neighbours"],
      ["Enter", "details of the op or group"],
      ["E", "through its edges"],
      ["Esc", "back to this"],
    ];
    return [
      element("h3", { class: "plain" }, "What was fused, and why not more"),
      element("p", {}, "Each box on the left is an op, each on the right a kernel. Ops of one kernel have its colour."),
      element("p", {}, "Solid edges are fused: their tensor never reaches global memory. Dashed ones are refused, in the colour of the reason. Dotted ones lead to or from a view, which costs nothing."),
      element("p", {}, "Select a box or an edge to see all about it on both sides."),
      heading("Keys"),
      facts(...keys.map(([key, text]) => [key, text])),
    ];
  },
};

function showDetails(selection) {
  details.dataset.kind = selection?.kind ?? "none";
  details.replaceChildren(...PANELS[details.dataset.kind](selection).filter((part) => part !== ""));
  details.scrollTop = 0;
}
