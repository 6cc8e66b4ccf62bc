// @ts-check
"use strict";

/** One run of the shown sentence: its graph, and the panels of the selected prefix. */
class RunView {
  /**
   * @param {Viewer} viewer
   * @param {Search} search
   * @param {number} number
   */
  constructor(viewer, search, number) {
    this.viewer = viewer;
    this.search = search;
    const graph = this.graph = new Graph(search, `run${number + 1}`, {
      onSelect: place => this.show(place),
      onHover: (place, x, y) => viewer.hover(search, place, x, y),
      onZoom: transform => viewer.zoomed(this, transform),
    });
    this.fates = html("div", { class: "fates" });
    this.groups = this.drawGroups();
    this.ledger = html("div", { class: "wide" });
    this.prefix = html("div", { class: "wide" });
    this.attention = html("div", { class: "wide" });
    const two = viewer.data.runs.length > 1;
    const of = two ? ` of run ${number + 1}` : "";
    this.element = html("article", { class: "run", "aria-label": `Run ${number + 1}` },
      html("section", { class: "search" },
        two && html("h2", {}, `Run ${number + 1}: ${search.run.name}`),
        this.facts(),
        html("div", { class: "frame" }, graph.root),
        this.fates,
        this.groups,
        this.hypotheses()),
      html("section", { class: "panels" },
        html("h3", {}, `Ledger${of}`), this.ledger,
        html("h3", {}, `Prefix${of}`), html("div", { class: "details" }, this.prefix, this.attention, gapPlot(search))));
  }

  /** Draw what needs a size, once the element is in the page. */
  start() {
    this.graph.draw();
    this.drawFates();
    this.show(this.graph.selected);
  }

  /** What the search was, and why it failed if it did. */
  facts() {
    const { data, run } = this.search;
    const options = Object.entries(run.options).map(([name, value]) => ` ${name} ${value}`).join(",");
    const facts = [
      `${run.decoder}${options && ":" + options}`,
      `${data.counted.toLocaleString("en")} expansions`,
      data.expansions.length < data.counted && `${data.expansions.length.toLocaleString("en")} of them recorded`,
      data.seconds !== null && `${data.seconds.toPrecision(2)} s`,
      data.stopped && data.stopped !== "proven" && `stopped: ${data.stopped}`,
      data.proven && "proven",
      data.searchError !== "" && data.hypotheses.length > 0 && `search error ${data.searchError}`,
    ].filter(Boolean).join(" · ");
    return html("div", { class: "facts" },
      html("p", { class: "muted" }, facts),
      data.error !== null && html("p", { class: "error" }, `The search failed: ${data.error}`));
  }

  /** The n-best list. */
  hypotheses() {
    const { hypotheses } = this.search.data;
    return hypotheses.length > 0 && roving(html("ol", { class: "hypotheses" }, ...hypotheses.map(hypothesis =>
      html("li", {}, html("button", {
        type: "button", disabled: hypothesis.place === null,
        click: () => this.graph.select(/** @type {number} */ (hypothesis.place)),
      }, html("span", { class: "number" }, shownScore(hypothesis.rankScore)), " ",
        html("bdi", {}, this.output(hypothesis))), this.groupsOf(hypothesis)))), "button:enabled");
  }

  /** @param {HypothesisData} hypothesis */
  groupsOf({ place }) {
    const text = place === null ? "" : this.search.groups.text(place);
    return text !== "" && html("span", { class: "of-groups" }, ` ${text}`);
  }

  /** @param {HypothesisData} hypothesis */
  output({ text, tokens }) {
    const shown = text ?? tokens.map(token => this.search.word(token)).join(" ");
    return shown === "" ? "(empty output)" : shown;
  }

  /** How many prefixes have each fate; the dropped ones can be hidden. */
  drawFates() {
    const { search, graph } = this;
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (let place = 0; place < search.size; place++)
      counts.set(search.fate(place), (counts.get(search.fate(place)) ?? 0) + 1);
    const kept = ["expanded", "listed"];
    const focused = this.fates.querySelector(":focus")?.closest("label")?.dataset.fate;
    const fates = roving(html("div", { class: "fates" }, ...[...counts].map(([fate, count]) => {
      const text = `${fate} ${count.toLocaleString("en")}`;
      if (kept.includes(fate)) return html("span", { class: "fate", "data-fate": fate, title: search.why(fate) }, text);
      const box = html("input", { type: "checkbox", change: () => {
        if (box.checked) graph.hidden.delete(fate);
        else graph.hidden.add(fate);
        this.redraw();
      } });
      box.checked = !graph.hidden.has(fate);
      box.disabled = graph.dropped === "none";
      return html("label", { class: "fate", "data-fate": fate, title: search.why(fate) }, box, ` ${text}`);
    })), "input:enabled");
    this.fates.replaceWith(fates);
    this.fates = fates;
    /** @type {HTMLElement | null | undefined} */ ([...fates.querySelectorAll("label")]
      .find(label => label.dataset.fate === focused)?.querySelector("input"))?.focus();
  }

  /** The groups that notes name, of which one can be shown alone; null if there are none. */
  drawGroups() {
    const { graph, search: { groups } } = this;
    if (!groups.names.length) return null;
    /** @param {string} name @param {...(Node | string)} label */
    const choice = (name, ...label) => html("label", { class: "group" },
      html("input", {
        type: "radio", name: `groups-${graph.root.id}`, value: name, checked: name === "", change: () => this.showGroup(name),
      }), " ", ...label);
    return html("div", { class: "fates groups", role: "radiogroup", "aria-label": "Groups shown" },
      choice("", "all"),
      ...groups.names.map((name, number) => choice(name, html("span", { class: `key ${series(number)}` }), name)));
  }

  /** Show only the prefixes of a group, and select its best hypothesis or the end of its first path; "" = all. @param {string} name */
  showGroup(name) {
    const { graph, search } = this;
    const members = [...search.groups.members.get(name) ?? []].sort((a, b) => a - b);
    graph.group = name === "" ? null : new Set(members);
    const best = search.data.hypotheses.find(({ place }) => place !== null && graph.group?.has(place))?.place;
    const end = members.find((place, at) => search.tree.parent[members[at + 1]] !== place);
    graph.select(best ?? end ?? graph.selected);
    this.redraw();
  }

  redraw() {
    this.graph.draw();
    this.resize();
    this.drawFates();
  }

  /** The frame is as high as the graph, within limits. */
  resize() {
    const { graph } = this;
    const height = (graph.height ?? 0) * d3.zoomTransform(graph.root).k + 2 * MARGIN;
    graph.root.style.height = `${Math.min(Math.max(height, 100), Math.round(innerHeight * 0.6))}px`;
  }

  /** Select a prefix and bring its graph into view. @param {Place} place */
  reveal(place) {
    this.graph.select(place);
    this.graph.root.scrollIntoView({ block: "nearest" });
  }

  /** @param {Place} place */
  show(place) {
    const { search, graph } = this;
    const select = (/** @type {Place} */ at) => graph.select(at);
    const focused = [this.ledger, this.prefix].find(panel => panel.contains(document.activeElement));
    this.ledger.replaceChildren(ledger(search, place, select));
    this.prefix.replaceChildren(prefixPanel(search, place, select));
    this.attention.replaceChildren(...attentionMaps(search, place));
    if (focused) {  // its elements are new, and the keyboard stays where it was
      const next = /** @type {HTMLElement | null} */ (
        focused.querySelector(`[data-place="${place}"] button`) ?? focused.querySelector("button"));
      (next ?? graph.root).focus({ preventScroll: true });
    }
    this.viewer.say(graph.spoken(place));
  }
}
