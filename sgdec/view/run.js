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
    this.ledger = html("div", { class: "wide" });
    this.prefix = html("div", { class: "wide" });
    this.attention = html("div", { class: "wide" });
    this.element = html("article", { class: "run", "aria-label": `Run ${number + 1}` },
      viewer.data.runs.length > 1 && html("h2", {}, `Run ${number + 1}: ${search.run.name}`),
      this.summary(),
      html("div", { class: "frame" }, graph.root),
      this.fates,
      html("div", { class: "panels" },
        html("section", {}, html("h3", {}, "Ledger"), this.ledger),
        html("section", {}, html("h3", {}, "Prefix"), this.prefix, this.attention, gapPlot(search))));
  }

  /** Draw what needs a size, once the element is in the page. */
  start() {
    const { graph } = this;
    graph.draw();
    graph.start();
    this.resize();
    this.drawFates();
    this.show(graph.selected);
  }

  summary() {
    const { data, run } = this.search;
    const options = Object.entries(run.options).map(([name, value]) => ` ${name} ${value}`).join(",");
    const facts = [
      `${run.decoder}${options && ":" + options}`,
      `${data.counted.toLocaleString("en")} expansions`,
      data.expansions.length < data.counted && `${data.expansions.length.toLocaleString("en")} of them recorded`,
      data.seconds !== null && `${data.seconds.toPrecision(2)} s`,
      data.stopped && data.stopped !== "proven" && `stopped: ${data.stopped}`,
      data.proven && "proven",
    ].filter(Boolean).join(" · ");
    return html("div", { class: "summary" },
      html("p", { class: "muted" }, facts),
      data.error !== null && html("p", { class: "error" }, `The search failed: ${data.error}`),
      data.hypotheses.length > 0 && html("ol", { class: "hypotheses" }, ...data.hypotheses.map(hypothesis =>
        html("li", {}, html("button", {
          type: "button", disabled: hypothesis.place === null,
          click: () => this.graph.select(/** @type {number} */ (hypothesis.place)),
        }, html("span", { class: "number" }, shownScore(hypothesis.rankScore)), " ",
          html("bdi", {}, this.output(hypothesis)))))));
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
    this.fates.replaceChildren(...[...counts].map(([fate, count]) => {
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
    }));
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
    this.ledger.replaceChildren(ledger(search, place, select));
    this.prefix.replaceChildren(prefixPanel(search, place, select));
    this.attention.replaceChildren(...attentionMaps(search, place));
    this.viewer.say(graph.spoken(place));
  }
}
