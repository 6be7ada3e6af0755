// What joins the parts: selection, search, legend, siblings, tooltips, and sorting of tables.

const graphs = [...workspace.querySelectorAll(".pane")].map((pane) => new Graph(pane));
const [beforeGraph] = graphs;
let selected = null;

// -- selection ----------------------------------------------------------------------------------

/** The ops and edges of a selection, and those that are near to it. */
function marksOf(selection) {
  const { kind, index } = selection;
  const ends = (i) => [report.edges[i].producer, report.edges[i].consumer].map((name) => opAt.get(name));
  const members = (group) => report.groups[group].ops.map((name) => opAt.get(name));
  if (kind === "op") {
    return { ops: [index], related: members(groupOf[index]), edges: [], near: edgesOf[index] };
  }
  if (kind === "group") {
    const ops = members(index);
    return { ops, related: [], edges: [], near: ops.flatMap((op) => edgesOf[op]) };
  }
  if (kind === "edge") return { ops: ends(index), related: [], edges: [index], near: [] };
  if (kind === "link") return { ops: ends(selection.edges[0]), related: [], edges: selection.edges, near: [] };
  const { first, second } = report.siblings[index];
  return { ops: [first, second].map((name) => opAt.get(name)), related: [], edges: [], near: [] };
}

/** Select an op, group, edge, sibling pair or link; null selects nothing. */
function select(selection) {
  selected = selection;
  showDetails(selection);
  const marks = selection && selection.kind !== "reason" ? marksOf(selection) : null;
  for (const graph of graphs) graph.mark(marks);
  if (marks) {
    for (const graph of graphs) {
      if (document.activeElement?.closest("svg") !== graph.svg) graph.moveTo(graph.nodeOf(marks.ops[0]), false);
    }
  }
}

document.addEventListener("click", (event) => {
  const chosen = event.target.closest("[data-select]");
  if (!chosen) return;
  const [kind, index] = chosen.dataset.select.split(":");
  const isOutside = !workspace.contains(chosen);
  select({ kind, index: Number(index) });
  if (isOutside) workspace.scrollIntoView({ behavior: CALM.matches ? "auto" : "smooth" });
  details.focus({ preventScroll: true });
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    showReason(null);
    select(null);
  } else if (event.key === "/" && !event.target.closest("input")) {
    event.preventDefault();
    search.focus();
    search.select();
  }
});

// -- legend -------------------------------------------------------------------------------------

const chips = [...workspace.querySelectorAll("[data-show-reason]")];

/** Fade all edges but those with one reason. */
function showReason(css) {
  if (css) workspace.dataset.reason = css;
  else delete workspace.dataset.reason;
  for (const chip of chips) chip.setAttribute("aria-pressed", String(chip.dataset.showReason === css));
}

for (const chip of chips) {
  chip.addEventListener("click", () => {
    const css = chip.dataset.showReason === workspace.dataset.reason ? null : chip.dataset.showReason;
    showReason(css);
    select(css && { kind: "reason", css });
  });
}

// -- search -------------------------------------------------------------------------------------

const search = document.getElementById("search");
const searchCount = document.getElementById("search-count");
let hits = [];
let turn = -1;

function matches(text) {
  const has = (...names) => names.some((name) => name.toLowerCase().includes(text));
  const pick = (entries, kind, test) => entries.flatMap((entry, index) => (test(entry) ? [{ kind, index }] : []));
  return [
    ...pick(report.ops, "op", (op) => has(op.name, op.function, op.origin)),
    ...pick(report.groups, "group", (group) => has(group.name)),
    ...pick(report.edges, "edge", (edge) => has(edge.reason.code)),
    ...pick(report.siblings, "sibling", (pair) => has(pair.reason.code)),
  ];
}

function runSearch() {
  const text = search.value.trim().toLowerCase();
  hits = text ? matches(text) : [];
  turn = -1;
  for (const graph of graphs) {
    graph.find(hits.filter((hit) => hit.kind === graph.kind).map((hit) => hit.index));
  }
  searchCount.textContent = text ? `${hits.length} found` : "";
}

search.addEventListener("input", runSearch);
search.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    search.value = "";
    runSearch();
    search.blur();
  }
  if (event.key !== "Enter" || !hits.length) return;
  turn = (turn + (event.shiftKey ? hits.length - 1 : 1)) % hits.length;
  searchCount.textContent = `${turn + 1} of ${hits.length}`;
  select(hits[turn]);
});

// -- zoom and scrolling -------------------------------------------------------------------------

for (const zoomButton of workspace.querySelectorAll("[data-zoom]")) {
  zoomButton.addEventListener("click", () => {
    for (const graph of graphs) {
      const next = { in: graph.zoom * ZOOM.step, out: graph.zoom / ZOOM.step, full: 1 };
      if (zoomButton.dataset.zoom === "fit") graph.fit();
      else graph.setZoom(next[zoomButton.dataset.zoom]);
    }
  });
}

const linkScrolling = document.getElementById("link-scrolling");
let leader = graphs[0];
for (const graph of graphs) {
  for (const name of ["pointerenter", "focusin"]) {
    graph.scroll.addEventListener(name, () => { leader = graph; });
  }
  graph.scroll.addEventListener("scroll", () => {
    if (!linkScrolling.checked || leader !== graph) return;
    const view = graph.scroll;
    const share = view.scrollTop / Math.max(1, view.scrollHeight - view.clientHeight);
    for (const { scroll } of graphs.filter((other) => other !== graph)) {
      scroll.scrollTop = share * (scroll.scrollHeight - scroll.clientHeight);
    }
  });
}

// -- siblings -----------------------------------------------------------------------------------

/** Draw the refused pairs of readers as arcs, or take them away. */
function drawSiblings(isShown) {
  for (const made of beforeGraph.svg.querySelectorAll(".siblings")) made.remove();
  if (!isShown) return;
  const layer = drawn("g", { class: "siblings", "aria-hidden": "true" });
  report.siblings.forEach(({ first, second, reason }, i) => {
    if (!isRefused(reason)) return;
    const [from, to] = [first, second].map((name) => beforeGraph.nodes[opAt.get(name)]);
    const [a, b] = from.x <= to.x ? [from, to] : [to, from];
    const start = [a.x + a.width, a.y + a.height / 2];
    const end = [b.x + b.width, b.y + b.height / 2];
    const bow = Math.max(start[0], end[0]) + 24 + Math.min(80, Math.abs(start[1] - end[1]) / 8);
    const d = `M${start.join(" ")}C${bow} ${start[1]} ${bow} ${end[1]} ${end.join(" ")}`;
    layer.append(drawn("path", { class: `edge sibling ${reasonClass(reason)}`, d }));
    layer.append(drawn("path", { class: "hit", "data-sibling": i, d }));
  });
  beforeGraph.svg.insertBefore(layer, beforeGraph.svg.querySelector(".nodes"));
}

document.getElementById("show-siblings")?.addEventListener("change", (event) => {
  drawSiblings(event.target.checked);
});

// -- pointing -----------------------------------------------------------------------------------

const tooltip = document.getElementById("tooltip");
let hovered = [];

function tooltipText({ kind, index, edges }) {
  if (kind === "op") {
    const op = report.ops[index];
    const cost = op.before.kernels ? `${amount(bytesOf(op.before))} by itself` : "costs no kernel";
    return [op.name, `${op.function}, ${kindWords(op.kind)}, ${cost}`, `in ${op.group}`];
  }
  if (kind === "group") {
    const group = report.groups[index];
    const moved = `${amount(bytesOf(group.before))} before, ${amount(bytesOf(group.after))} after`;
    return [group.name, group.kind === "view" ? GROUP_WORDS.view : `${counted(group.ops.length, "op")}, ${moved}`];
  }
  if (kind === "link") return [`${edges.length} edges`, ...edges.slice(0, 6).map((i) => pairText(report.edges[i]))];
  const pair = kind === "edge" ? report.edges[index] : report.siblings[index];
  const name = kind === "edge" ? pairText(pair) : `${pair.first}, ${pair.second}`;
  return [name, `${pair.reason.is_free ? "no cost" : pair.reason.verdict}: ${pair.reason.code}`, pair.reason.message];
}

function hover(graph, event) {
  for (const made of hovered) made.classList.remove("hover");
  hovered = [];
  const subject = graph.subject(event.target);
  tooltip.hidden = !subject;
  if (!subject) return;
  const [first, ...rest] = tooltipText(subject);
  tooltip.replaceChildren(element("b", {}, first), ...rest.map((line) => element("div", {}, line)));
  const link = event.target.closest("[data-link]");
  const links = link ? [Number(link.dataset.link)] : graph.linksOf.get(subject.index) ?? [];
  hovered = subject.kind === "sibling" ? [] : links.map((i) => graph.links[i].element);
  for (const made of hovered) made.classList.add("hover");
}

function placeTooltip(event) {
  if (tooltip.hidden) return;
  const { offsetWidth, offsetHeight } = tooltip;
  const x = Math.min(event.clientX + 14, innerWidth - offsetWidth - 8);
  const below = event.clientY + 18;
  const y = below + offsetHeight > innerHeight ? event.clientY - offsetHeight - 12 : below;
  tooltip.style.left = `${Math.max(8, x)}px`;
  tooltip.style.top = `${y}px`;
}

for (const graph of graphs) {
  graph.svg.addEventListener("pointerover", (event) => hover(graph, event));
  graph.svg.addEventListener("pointermove", placeTooltip);
  graph.svg.addEventListener("pointerleave", () => { tooltip.hidden = true; });
  graph.svg.addEventListener("click", (event) => {
    const subject = graph.subject(event.target);
    if (subject) select(subject);
  });
}

// -- tables -------------------------------------------------------------------------------------

const cellValue = (row, column) => {
  const text = row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
};

for (const sorter of document.querySelectorAll("[data-sort]")) {
  sorter.addEventListener("click", () => {
    const title = sorter.closest("th");
    const isUp = title.getAttribute("aria-sort") === "descending";
    for (const other of title.parentElement.cells) {
      if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    }
    title.setAttribute("aria-sort", isUp ? "ascending" : "descending");
    const body = title.closest("table").tBodies[0];
    const order = (a, b) => {
      const [x, y] = [a, b].map((row) => cellValue(row, title.cellIndex));
      return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    };
    body.append(...[...body.rows].sort((a, b) => (isUp ? order(a, b) : order(b, a))));
  });
}

for (const graph of graphs) graph.open();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => graphs.forEach((g) => g.drawStrip()));
select(null);
