// @ts-check
"use strict";

const ROW = 30;
const GAP = 40;
const FONT = "13px system-ui, sans-serif";
const LONGEST_LABEL = 16;
const OPENED_AT_ONCE = 150;
/** So many dropped branches of each prefix are shown on request. */
const BEST = 3;
/** So many prefixes of a group are shown before the reader opens more. */
const MOST_MEMBERS = 200;
const MARGIN = 24;
/** Labels of this scale can still be read. */
const READABLE = 0.8;

const ruler = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));

/** The search as a tree whose columns are lengths. The tree is one element for the keyboard: arrows move in it. */
class Graph {
  /**
   * @param {Search} search
   * @param {string} id of the element
   * @param {{onSelect: (place: Place) => void, onHover: (place: Place | null, x: number, y: number) => void,
   *          onZoom: (transform: any) => void}} listeners
   */
  constructor(search, id, listeners) {
    this.search = search;
    this.listeners = listeners;
    /** @type {"none" | "path" | "best" | "all"} */
    this.dropped = "none";
    /** Fates that are not shown. @type {Set<string>} */
    this.hidden = new Set();
    /** The members of the group that alone is shown, in the order of places. @type {Set<Place> | null} */
    this.group = null;
    this.until = Infinity;
    /** @type {Set<Place>} */
    this.open = new Set(search.data.shown);
    /** @type {Set<Place>} */
    this.matches = new Set();
    /** @type {Place} */
    this.selected = search.best ?? 0;
    /** The left edge of each column. @type {number[]} */
    this.lefts = [];
    /** The column where two runs part. @type {number | null} */
    this.parting = null;
    this.best = new Set(search.best === undefined ? [] : search.path(search.best));

    this.root = svg("svg", {
      id, class: "graph", tabindex: 0, role: "tree",
      "aria-label": "Search graph. Arrow keys move between prefixes, plus and minus zoom.",
    });
    const canvas = d3.select(this.root).append("g");
    this.marks = canvas.append("g");
    this.edges = canvas.append("g").attr("class", "edges");
    this.nodes = canvas.append("g").attr("class", "nodes");
    this.zoom = /** @type {d3.ZoomBehavior<SVGSVGElement, any>} */ (d3.zoom())
      .scaleExtent([0.05, 3])
      .filter(event => event.type !== "wheel" || event.ctrlKey || event.metaKey)
      .on("zoom", event => {
        canvas.attr("transform", event.transform);
        if (event.sourceEvent) listeners.onZoom(event.transform);
      });
    d3.select(this.root).call(this.zoom).on("dblclick.zoom", null);
    this.root.addEventListener("keydown", event => this.key(event));
    this.root.addEventListener("pointerleave", () => listeners.onHover(null, 0, 0));
  }

  /** The prefixes to draw, in order; parents are among them. */
  shown() {
    const { search } = this;
    const found = new Set([...this.members(), ...[...this.open].filter(place => this.inGroup(place))]);
    for (const place of search.path(this.selected)) found.add(place);
    const parents = { none: [], path: search.path(this.selected), best: [...found], all: [...found] }[this.dropped];
    for (const parent of parents) {
      const dropped = search.children[parent].filter(
        child => !search.kept(child) && !this.hidden.has(search.fate(child)));
      for (const child of this.dropped === "best" ? dropped.slice(0, BEST) : dropped) found.add(child);
    }
    return [...found].filter(place => this.before(place)).sort((a, b) => a - b);
  }

  /** The first prefixes of the group that is shown, also those that were dropped. */
  members() {
    const { search, hidden } = this;
    return [...this.group ?? []].slice(0, MOST_MEMBERS).filter(place => search.kept(place) || !hidden.has(search.fate(place)));
  }

  /** Whether it belongs to the group that is shown. @param {Place} place */
  inGroup(place) {
    return this.group === null || this.group.has(place);
  }

  /** Whether it existed when `until` prefixes had been expanded. @param {Place} place */
  before(place) {
    const { parent, expansion } = this.search.tree;
    return parent[place] < 0 || expansion[parent[place]] < this.until;
  }

  draw() {
    const { search } = this;
    const shown = this.shown();
    const rows = rowsOf(search.tree.parent, shown);
    const labels = new Map(shown.map(place => [place, this.caption(place)]));
    const widths = new Map(shown.map(place => {
      ruler.font = this.best.has(place) ? `600 ${FONT}` : FONT;
      return [place, ruler.measureText(labels.get(place) ?? "").width + 16];
    }));
    const lefts = this.lefts = this.columns(shown, widths);
    this.boxes = new Map(shown.map(place => [place, {
      x: lefts[search.lengths[place]], y: (rows.get(place) ?? 0) * ROW, width: widths.get(place) ?? 0,
    }]));
    this.width = Math.max(...[...this.boxes.values()].map(box => box.x + box.width));
    this.height = (Math.max(...rows.values()) + 1) * ROW;
    this.drawEdges(shown);
    this.drawNodes(shown, labels);
    this.drawParting();
  }

  /** The left edge of each column. @param {Place[]} shown @param {Map<Place, number>} widths */
  columns(shown, widths) {
    /** @type {number[]} */
    const widest = [];
    for (const place of shown) {
      const column = this.search.lengths[place];
      widest[column] = Math.max(widest[column] ?? 0, widths.get(place) ?? 0);
    }
    const lefts = [0];
    for (const width of widest) lefts.push(lefts[lefts.length - 1] + width + GAP);
    return lefts;
  }

  /** The text in a box: the token, and for dropped prefixes why. @param {Place} place */
  caption(place) {
    const { search } = this;
    const label = search.label(place, LONGEST_LABEL);
    if (search.tree.rank[place] >= 0) return `${label} ${ordinal(search.tree.rank[place] + 1)}`;
    return search.kept(place) ? label : `${label} · ${cut(search.fate(place), LONGEST_LABEL)}`;
  }

  /** The prefixes that this one hides: expanded ones that are not drawn. @param {Place} place */
  folded(place) {
    const { search } = this;
    return search.children[place].filter(child =>
      search.kept(child) && !this.boxes?.has(child) && this.before(child) && this.inGroup(child));
  }

  /** @param {Place[]} shown */
  drawEdges(shown) {
    const { search } = this;
    const { parent, total } = search.tree;
    /** @type {number[]} */
    const bests = [];
    for (const place of shown) {
      const column = search.lengths[place];
      bests[column] = Math.max(bests[column] ?? -Infinity, total[place] ?? -Infinity);
    }
    /** @param {Place} place */
    const width = place => 1 + 4 * Math.exp((total[place] ?? -Infinity) - bests[search.lengths[place]]);
    const drawn = shown.filter(place => parent[place] >= 0);
    drawn.sort((a, b) => Number(this.best.has(a)) - Number(this.best.has(b)));  // the best path is above the others
    this.edges.selectAll("path.step")
      .data(drawn, place => place)
      .join("path")
      .attr("class", place => `step ${this.kind(place)}`)
      .attr("data-place", place => place)
      .attr("stroke-width", place => width(place) || 1)
      .attr("d", place => this.curve(this.box(parent[place]), this.box(place)))
      .order();
    this.edges.selectAll("path.recombined")
      .data(search.data.recombined.filter(pair => pair.every(place => this.boxes?.has(place))), String)
      .join("path")
      .attr("class", "recombined")
      .attr("d", ([from, to]) => this.arc(this.box(from), this.box(to)));
  }

  /** @param {Place} place @returns {{x: number, y: number, width: number}} */
  box(place) {
    return /** @type {any} */ (this.boxes?.get(place));
  }

  /** @param {{x: number, y: number, width: number}} from @param {{x: number, y: number}} to */
  curve(from, to) {
    const [x, y] = [from.x + from.width, from.y + ROW / 2];
    const middle = to.x - GAP / 2;
    return `M${x},${y}H${to.x - GAP}C${middle},${y} ${middle},${to.y + ROW / 2} ${to.x},${to.y + ROW / 2}`;
  }

  /** @param {{x: number, y: number, width: number}} from @param {{x: number, y: number, width: number}} to */
  arc(from, to) {
    const [x, y] = [from.x + from.width / 2, from.y + (from.y > to.y ? 3 : ROW - 3)];
    const [endX, endY] = [to.x + to.width / 2, to.y + (from.y > to.y ? ROW - 3 : 3)];
    const bend = Math.max(30, Math.abs(endX - x) / 3);
    return `M${x},${y}C${x + bend},${y} ${endX + bend},${endY} ${endX},${endY}`;
  }

  /** The classes of a prefix. @param {Place} place */
  kind(place) {
    const { search } = this;
    return [
      search.kept(place) ? "kept" : "dropped",
      this.best.has(place) && "best",
      search.tree.token[place] === EOS && "finished",
      this.onPath?.has(place) && "on-path",
      this.matches.has(place) && "match",
    ].filter(Boolean).join(" ");
  }

  /** @param {Place[]} shown @param {Map<Place, string>} labels */
  drawNodes(shown, labels) {
    const { search, root } = this;
    this.onPath = new Set(search.path(this.selected));
    const groups = this.nodes.selectAll("g.node")
      .data(shown, place => place)
      .join(enter => {
        const group = enter.append("g");
        group.append("rect");
        group.append("text").attr("class", "label");
        group.append("text").attr("class", "more");
        return group.on("click", (event, place) => this.select(place, true))
          .on("pointerenter", (event, place) => this.listeners.onHover(place, event.clientX, event.clientY))
          .on("pointerleave", () => this.listeners.onHover(null, 0, 0));
      })
      .attr("class", place => `node ${this.kind(place)}`)
      .attr("id", place => `${root.id}-${place}`)
      .attr("data-place", place => place)
      .attr("data-fate", place => search.fate(place))
      .attr("role", "treeitem")
      .attr("aria-level", place => search.lengths[place] + 1)
      .attr("aria-selected", place => place === this.selected)
      .attr("aria-label", place => this.spoken(place))
      .attr("transform", place => `translate(${this.box(place).x},${this.box(place).y})`)
      .order();
    groups.select("rect")
      .attr("y", 3).attr("height", ROW - 6)
      .attr("rx", place => search.tree.token[place] === EOS ? 12 : 4)
      .attr("width", place => this.box(place).width);
    groups.selectAll("rect.member")
      .data(place => this.marked(place))
      .join("rect")
      .attr("class", ({ number }) => `member ${series(number)}`)
      .attr("x", ({ left }) => left).attr("width", ({ width }) => width)
      .attr("y", ROW - 6).attr("height", 3);
    groups.select("text.label").attr("x", 8).attr("y", ROW / 2).text(place => labels.get(place) ?? "");
    groups.select("text.more")
      .attr("x", place => this.box(place).width + 3).attr("y", ROW / 2)
      .text(place => this.more(place))
      .on("click", (event, place) => {
        event.stopPropagation();
        this.unfold(place);
      });
    root.setAttribute("aria-activedescendant", `${root.id}-${this.selected}`);
  }

  /** The marks of the groups of a prefix, which share the width of its box. @param {Place} place */
  marked(place) {
    const numbers = this.search.groups.of(place);
    const width = (this.box(place).width - 16) / numbers.length;
    return numbers.length > MOST_MARKS ? [] : numbers.map((number, at) => ({ number, left: 8 + at * width, width }));
  }

  /** The number of expanded prefixes behind this one that are not drawn. @param {Place} place */
  more(place) {
    const count = this.folded(place).reduce((sum, child) => sum + this.behind(child), 0);
    return count ? `+${count}` : "";
  }

  /** The number of expanded prefixes that begin with this one, in the group that is shown. @param {Place} place */
  behind(place) {
    const { tree, lengths, size } = this.search;
    if (this.group === null) return tree.below[place] + Number(tree.expansion[place] >= 0);
    let count = 0;
    for (let at = place; at < size && (at === place || lengths[at] > lengths[place]); at++)
      count += Number(this.group.has(at) && tree.expansion[at] >= 0);
    return count;
  }

  /** @param {Place} place */
  spoken(place) {
    const { search } = this;
    return `${search.label(place, 60)}, total ${shownScore(search.tree.total[place])}, ${search.reason(place)}`;
  }

  drawParting() {
    const { lefts } = this;
    const at = this.parting === null ? [] : [this.parting];
    this.marks.selectAll("line.parting").data(at).join("line").attr("class", "parting")
      .attr("x1", column => lefts[column] - GAP / 2).attr("x2", column => lefts[column] - GAP / 2)
      .attr("y1", -14).attr("y2", this.height ?? 0);
    this.marks.selectAll("text.parting").data(at).join("text").attr("class", "parting")
      .attr("x", column => lefts[column] - GAP / 2 + 4).attr("y", -6).text("the outputs part");
  }

  /** Draw the largest folded subtrees. @param {Place} place */
  unfold(place) {
    const { search } = this;
    const { below } = search.tree;
    let found = this.folded(place);
    for (const at of found) found.push(...search.children[at].filter(child => search.kept(child)));
    found = found.sort((a, b) => below[b] - below[a] || a - b).slice(0, OPENED_AT_ONCE);
    for (const at of found) for (const each of search.path(at)) this.open.add(each);
    this.draw();
  }

  /** @param {Place} place @param {boolean} [still] whether the view stays where it is */
  select(place, still = false) {
    this.selected = place;
    this.draw();
    if (!still) this.bringIntoView(place);
    this.listeners.onSelect(place);
  }

  /** Move the view if the prefix is outside. @param {Place} place */
  bringIntoView(place) {
    const { x, y, width } = this.box(place);
    const now = d3.zoomTransform(this.root);
    const [left, top] = now.apply([x, y]);
    const size = this.root.getBoundingClientRect();
    const [right, bottom] = [left + width * now.k, top + ROW * now.k];
    if (left < 0 || top < 0 || right > size.width || bottom > size.height)
      this.zoom.translateTo(d3.select(this.root), x + width / 2, y + ROW / 2);
    this.listeners.onZoom(d3.zoomTransform(this.root));
  }

  /** The room for columns, in pixels. */
  room() {
    return this.root.getBoundingClientRect().width - 2 * MARGIN;
  }

  /** The scale that shows the whole width if labels can be read then. */
  readable() {
    return Math.max(Math.min(1, this.room() / (this.width ?? 1)), READABLE);
  }

  /** How much to hide on the left at a scale: nothing, or what is too far from where two runs part. @param {number} scale */
  beginning(scale) {
    const there = scale * (this.lefts[this.parting ?? 0] ?? 0);
    return Math.min(Math.max(0, there - this.room() / 2), Math.max(0, scale * (this.width ?? 0) - this.room()));
  }

  /** Show all of it. */
  fit() {
    const size = this.root.getBoundingClientRect();
    const scale = Math.min(
      1, (size.width - 2 * MARGIN) / (this.width ?? 1), (size.height - 2 * MARGIN) / (this.height ?? 1));
    this.move(d3.zoomIdentity.translate(MARGIN, MARGIN).scale(scale));
  }

  /** @param {any} transform */
  move(transform) {
    this.zoom.transform(d3.select(this.root), transform);
  }

  /** @param {number} factor */
  scale(factor) {
    this.zoom.scaleBy(d3.select(this.root), factor);
    this.listeners.onZoom(d3.zoomTransform(this.root));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = this.neighbour(event.key);
    if (target !== undefined) this.select(target);
    else if (event.key === "Enter") this.unfold(this.selected);
    else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Where a key leads. @param {string} key @returns {Place | undefined} */
  neighbour(key) {
    const { search, selected } = this;
    if (key === "ArrowLeft") return search.tree.parent[selected] < 0 ? undefined : search.tree.parent[selected];
    if (key === "ArrowRight") return search.children[selected].find(child => this.boxes?.has(child));
    if (key === "Home") return search.path(selected)[0];
    if (key === "End") return search.best;
    const column = [...this.boxes?.keys() ?? []].filter(at => search.lengths[at] === search.lengths[selected]);
    const at = column.indexOf(selected);
    if (key === "ArrowUp") return column[at - 1];
    if (key === "ArrowDown") return column[at + 1];
    return undefined;
  }
}
