// One of the two graphs: marks, zoom, overview, and keys.

const CALM = matchMedia("(prefers-reduced-motion: reduce)");
/** The least zoom that the page opens with. */
const LEGIBLE = 0.75;

const ZOOM = { least: 0.02, most: 3, step: 1.25 };

class Graph {
  constructor(section) {
    this.side = section.dataset.side;
    this.scroll = section.querySelector(".scroll");
    this.svg = section.querySelector(".scroll > svg");
    this.strip = section.querySelector(".strip");
    this.kind = this.side === "before" ? "op" : "group";
    this.size = [this.svg.width.baseVal.value, this.svg.height.baseVal.value];
    this.zoom = 1;
    this.marked = [];
    this.nodes = [];
    this.links = [];
    this.linksOf = new Map();
    this.readNodes();
    this.readLinks();
    this.current = this.nodes.findIndex((node) => node.element.getAttribute("tabindex") === "0");
    this.listen();
  }

  readNodes() {
    for (const made of this.svg.querySelectorAll(".node")) {
      const at = made.transform.baseVal[0].matrix;
      const rect = made.firstElementChild;
      const [width, height] = [rect.width.baseVal.value, rect.height.baseVal.value];
      const index = Number(made.dataset[this.kind]);
      this.nodes[index] = { element: made, x: at.e, y: at.f, width, height };
      this.linksOf.set(index, []);
    }
  }

  /** Find the edges, and lay wide ones that nobody sees over them to be pointed at. */
  readLinks() {
    const layer = drawn("g", { class: "hits", "aria-hidden": "true" });
    for (const made of this.svg.querySelectorAll(".edges > path")) {
      const edges = (made.dataset.edge ?? made.dataset.edges).split(" ").map(Number);
      const ends = [report.edges[edges[0]].producer, report.edges[edges[0]].consumer];
      const [from, to] = ends.map((name) => this.nodeOf(opAt.get(name)));
      const position = this.links.push({ element: made, edges, from, to }) - 1;
      this.linksOf.get(from).push(position);
      this.linksOf.get(to).push(position);
      layer.append(drawn("path", { class: "hit", "data-link": position, d: made.getAttribute("d") }));
    }
    this.svg.insertBefore(layer, this.svg.querySelector(".nodes"));
  }

  /** The node that an op is drawn as. */
  nodeOf(op) {
    return this.side === "before" ? op : groupOf[op];
  }

  /** What is under the pointer: a node, an edge, a sibling, or null. */
  subject(target) {
    const hit = target.closest(".hit");
    if (hit?.dataset.sibling) return { kind: "sibling", index: Number(hit.dataset.sibling) };
    if (hit) return linkSubject(this.links[Number(hit.dataset.link)].edges);
    const node = target.closest(".node");
    return node && { kind: this.kind, index: Number(node.dataset[this.kind]) };
  }

  // -- marks ------------------------------------------------------------------------------

  /** Show a selection: its ops, the groups of them, and its edges. */
  mark(selection) {
    for (const [made, name] of this.marked) made.classList.remove(name);
    this.marked = [];
    this.svg.classList.toggle("has-selection", selection !== null);
    if (selection) {
      const { ops, related, edges, near } = selection;
      const chosen = new Set(ops.map((op) => this.nodeOf(op)));
      const others = new Set(related.map((op) => this.nodeOf(op)));
      for (const node of others) this.put(this.nodes[node].element, "related");
      for (const node of chosen) this.put(this.nodes[node].element, "selected");
      const [strong, weak] = [new Set(edges), new Set(near)];
      for (const link of this.links) {
        if (link.edges.some((edge) => strong.has(edge))) this.lift(link.element, "selected");
        else if (link.edges.some((edge) => weak.has(edge))) this.lift(link.element, "related");
      }
      if (chosen.size) this.reveal([...chosen]);
    }
    this.drawStrip();
  }

  /** Mark an edge, and lay it over those that share its way. */
  lift(made, name) {
    made.parentElement.append(made);
    this.put(made, name);
  }

  put(made, name) {
    made.classList.add(name);
    this.marked.push([made, name]);
  }

  /** Outline the nodes that a search found. */
  find(indices) {
    const found = new Set(indices);
    this.nodes.forEach((node, i) => node.element.classList.toggle("found", found.has(i)));
    this.drawStrip();
  }

  /** Scroll to nodes unless they are in view. */
  reveal(indices) {
    const boxes = indices.map((i) => this.nodes[i]);
    const offset = this.offset();
    const span = (start, size) => {
      const low = Math.min(...boxes.map((box) => box[start]));
      return [low * this.zoom, Math.max(...boxes.map((box) => box[start] + box[size])) * this.zoom];
    };
    const place = ([low, high], shift, at, room) => {
      const [first, last] = [low + shift, high + shift];
      if (first >= at + 8 && last <= at + room - 8) return at;
      return last - first < room - 32 ? (first + last - room) / 2 : first - 16;
    };
    const view = this.scroll;
    const covered = view.getBoundingClientRect().bottom - details.getBoundingClientRect().top;
    const isBelow = details.offsetTop > view.offsetTop + 8;
    const height = view.clientHeight - (isBelow ? Math.max(0, covered) : 0);
    const left = place(span("x", "width"), offset.x, view.scrollLeft, view.clientWidth);
    const top = place(span("y", "height"), offset.y, view.scrollTop, height);
    const isFar = Math.abs(top - view.scrollTop) > 4 * view.clientHeight;
    view.scrollTo({ left, top, behavior: CALM.matches || isFar ? "instant" : "smooth" });
  }

  /** Where the drawing begins within what is scrolled: it is centred where it is narrow. */
  offset() {
    const width = this.size[0] * this.zoom;
    return { x: Math.max(0, (this.scroll.clientWidth - width) / 2), y: 0 };
  }

  // -- zoom -------------------------------------------------------------------------------

  setZoom(zoom, at = [this.scroll.clientWidth / 2, this.scroll.clientHeight / 2]) {
    const next = Math.min(ZOOM.most, Math.max(ZOOM.least, zoom));
    const before = this.offset();
    const x = (this.scroll.scrollLeft + at[0] - before.x) / this.zoom;
    const y = (this.scroll.scrollTop + at[1]) / this.zoom;
    this.zoom = next;
    this.svg.setAttribute("width", this.size[0] * next);
    this.svg.setAttribute("height", this.size[1] * next);
    this.scroll.scrollLeft = x * next + this.offset().x - at[0];
    this.scroll.scrollTop = y * next - at[1];
    this.drawStrip();
  }

  /** The zoom at which all of the graph is in view. */
  fit() {
    const { clientWidth, clientHeight } = this.scroll;
    this.setZoom(Math.min(1, clientWidth / this.size[0], clientHeight / this.size[1]));
  }

  /** Show the first node; make the graph fit the pane if its text stays legible. */
  open() {
    const room = this.scroll.clientWidth;
    if (this.size[0] > room && this.size[0] * LEGIBLE < room) this.setZoom(room / this.size[0], [0, 0]);
    this.scroll.scrollTop = 0;
    const first = this.nodes[this.current];
    if (first) this.scroll.scrollLeft = (first.x + first.width / 2) * this.zoom - room / 2;
    this.drawStrip();
  }

  // -- overview ---------------------------------------------------------------------------

  /** The strip shows all nodes in their colours, what is chosen, and what is in view. */
  drawStrip() {
    const { scroll, strip } = this;
    const isAllSeen =
      scroll.scrollHeight <= scroll.clientHeight + 1 && scroll.scrollWidth <= scroll.clientWidth + 1;
    strip.hidden = isAllSeen;
    if (isAllSeen) return;
    const [width, height] = [strip.clientWidth, strip.clientHeight];
    const dots = devicePixelRatio || 1;
    strip.width = width * dots;
    strip.height = height * dots;
    const pen = strip.getContext("2d");
    pen.scale(dots, dots);
    const [across, down] = [(width - 6) / this.size[0], height / this.size[1]];
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink");
    const accent = style.getPropertyValue("--accent");
    const colours = new Map();
    for (const { element: made, x, y, width: w, height: h } of this.nodes) {
      const key = made.classList[1];
      if (!colours.has(key)) colours.set(key, getComputedStyle(made).getPropertyValue("--line"));
      pen.fillStyle = made.classList.contains("found") ? accent : colours.get(key);
      pen.fillRect(3 + x * across, y * down, Math.max(1, w * across), Math.max(0.5, h * down));
    }
    pen.fillStyle = ink;
    for (const [made] of this.marked.filter(([, name]) => name === "selected")) {
      const node = this.nodes[Number(made.dataset[this.kind])];
      if (node) pen.fillRect(0, (node.y + node.height / 2) * down - 1, width, 3);
    }
    pen.globalAlpha = 0.14;
    const seen = [scroll.scrollTop, scroll.clientHeight].map((v) => (v / scroll.scrollHeight) * height);
    pen.fillRect(0, seen[0], width, Math.max(6, seen[1]));
  }

  scrollToStrip(event) {
    const share = event.offsetY / this.strip.clientHeight;
    this.scroll.scrollTop = share * this.scroll.scrollHeight - this.scroll.clientHeight / 2;
  }

  // -- events -----------------------------------------------------------------------------

  listen() {
    this.scroll.addEventListener("scroll", () => requestAnimationFrame(() => this.drawStrip()));
    new ResizeObserver(() => this.drawStrip()).observe(this.scroll);
    this.strip.addEventListener("pointerdown", (event) => {
      this.strip.setPointerCapture(event.pointerId);
      this.scrollToStrip(event);
    });
    this.strip.addEventListener("pointermove", (event) => {
      if (event.buttons) this.scrollToStrip(event);
    });
    this.scroll.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        const frame = this.scroll.getBoundingClientRect();
        const at = [event.clientX - frame.left, event.clientY - frame.top];
        this.setZoom(this.zoom * Math.exp(-event.deltaY / 300), at);
      },
      { passive: false },
    );
    this.scroll.addEventListener("focusin", (event) => {
      const node = event.target.closest(".node");
      if (node) this.moveTo(Number(node.dataset[this.kind]), false);
    });
    this.scroll.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowUp: "to", ArrowDown: "from", ArrowLeft: -1, ArrowRight: 1 };
    if (event.key in steps) {
      const step = steps[event.key];
      const next = typeof step === "number" ? this.beside(step) : this.along(step);
      if (next !== undefined) this.moveTo(next, true);
    } else if (event.key === "Enter" || event.key === " ") {
      select({ kind: this.kind, index: this.current });
    } else if (event.key === "e" || event.key === "E") {
      this.nextEdge();
    } else {
      return;
    }
    event.preventDefault();
  }

  /** The node at the other end of the first edge of which the current one is this end. */
  along(end) {
    const other = end === "from" ? "to" : "from";
    const ends = this.linksOf.get(this.current).map((link) => this.links[link]);
    const found = ends.filter((link) => link[end] === this.current).map((link) => link[other]);
    const middle = (i) => this.nodes[i].x + this.nodes[i].width / 2;
    const from = middle(this.current);
    return found.sort((a, b) => Math.abs(middle(a) - from) - Math.abs(middle(b) - from))[0];
  }

  /** The next node to the left or right in the same layer. */
  beside(direction) {
    const height = (node) => node.y + node.height / 2;
    const here = this.nodes[this.current];
    let best;
    this.nodes.forEach((node, i) => {
      const way = (node.x - here.x) * direction;
      if (way <= 0 || Math.abs(height(node) - height(here)) > 1) return;
      if (best === undefined || way < (this.nodes[best].x - here.x) * direction) best = i;
    });
    return best;
  }

  /** Make a node the one that Tab comes to. */
  moveTo(index, isFocused) {
    this.nodes[this.current]?.element.setAttribute("tabindex", "-1");
    this.current = index;
    this.nodes[index].element.setAttribute("tabindex", "0");
    if (!isFocused) return;
    this.nodes[index].element.focus({ preventScroll: true });
    this.reveal([index]);
  }

  /** Select the next edge of the current node. */
  nextEdge() {
    const links = this.linksOf.get(this.current);
    if (!links.length) return;
    if (this.edgesFrom !== this.current) [this.edgesFrom, this.edgeTurn] = [this.current, -1];
    this.edgeTurn = (this.edgeTurn + 1) % links.length;
    select(linkSubject(this.links[links[this.edgeTurn]].edges));
  }
}

/** What is selected by an edge of a drawing: an edge, or the several that it stands for. */
function linkSubject(edges) {
  return edges.length === 1 ? { kind: "edge", index: edges[0] } : { kind: "link", edges };
}
