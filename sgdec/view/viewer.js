// @ts-check
"use strict";

/** The page: its controls, and the runs of the sentence that the address names. */
class Viewer {
  /** @param {PageData} data */
  constructor(data) {
    this.data = data;
    this.id = data.ids[0];
    /** @type {RunView[]} */
    this.views = [];
    /** @type {{view: RunView, place: Place}[]} */
    this.found = [];
    this.at = -1;
    this.tooltip = byId("tooltip");
    this.number = /** @type {HTMLInputElement} */ (byId("number"));
    this.term = /** @type {HTMLInputElement} */ (byId("term"));
    this.dropped = /** @type {HTMLSelectElement} */ (byId("dropped"));
    this.until = /** @type {HTMLInputElement} */ (byId("until"));
    this.listen();
    this.follow();
  }

  listen() {
    addEventListener("hashchange", () => this.follow());
    addEventListener("keydown", event => this.key(event));
    byId("previous").addEventListener("click", () => this.turn(-1));
    byId("next").addEventListener("click", () => this.turn(1));
    this.number.addEventListener("change", () => this.go(Number(this.number.value)));
    this.term.addEventListener("input", () => this.search());
    this.term.addEventListener("keydown", event => {
      if (event.key === "Enter") this.nextMatch(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") this.views[0]?.graph.root.focus();
    });
    this.dropped.addEventListener("change", () => this.drop());
    this.until.addEventListener("input", () => this.rewind());
    byId("closer").addEventListener("click", () => this.eachGraph(graph => graph.scale(1.25)));
    byId("farther").addEventListener("click", () => this.eachGraph(graph => graph.scale(0.8)));
    byId("fit").addEventListener("click", () => this.eachGraph(graph => graph.fit()));
    byId("skip").addEventListener("click", () => this.views[0]?.graph.root.focus());
    roving(byId("zoom"), "button");
    roving(byId("sentences"), "th button, td a");
  }

  /** Show the sentence that the address names, or the first. */
  async follow() {
    const named = Number(new URLSearchParams(location.hash.slice(1)).get("sentence"));
    const id = this.id = this.data.ids.includes(named) ? named : this.data.ids[0];
    this.number.value = String(id);
    for (const row of document.querySelectorAll("#sentences tbody tr"))
      if (/** @type {HTMLElement} */ (row).dataset.sentence === String(id)) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    byId("runs").setAttribute("aria-busy", "true");
    /** @type {SentenceData | Error} */
    const found = await unpacked(id).catch(error => error);
    if (id !== this.id) return;  // the reader has gone on
    if (found instanceof Error) this.fail(found);
    else this.show(found);
    byId("runs").removeAttribute("aria-busy");
  }

  /** @param {Error} error */
  fail(error) {
    this.views = [];
    this.search();
    byId("source").textContent = "";
    byId("parting").replaceChildren();
    byId("runs").replaceChildren(html("p", { class: "error", role: "alert" }, error.message));
  }

  /** @param {SentenceData} sentence */
  show({ searches, parting }) {
    const found = searches.map((search, run) => search && new Search(search, this.data.runs[run], this.data.reasons));
    this.views = found.flatMap((search, run) => search ? [new RunView(this, search, run)] : []);
    byId("source").textContent = this.source(searches.find(search => search !== null));
    const both = this.views.map(view => view.search);
    byId("parting").replaceChildren(
      ...(parting ? [partingPanel(parting, both, (run, place) => this.views[run].reveal(place))] : []));
    byId("runs").replaceChildren(
      ...this.views.map(view => view.element), (parting && differences(parting, both)) ?? "");
    for (const view of this.views) {
      view.graph.parting = parting?.step === undefined || parting.step === null ? null : parting.step + 1;
      view.graph.dropped = /** @type {any} */ (this.dropped.value);
      view.start();
    }
    const graphs = this.views.map(view => view.graph);
    const scale = Math.min(...graphs.map(graph => graph.readable()));
    const left = Math.min(...graphs.map(graph => graph.beginning(scale)));
    this.eachGraph(graph => graph.move(d3.zoomIdentity.translate(MARGIN - left, MARGIN).scale(scale)));
    for (const view of this.views) view.resize();
    const most = Math.max(...this.views.map(view => view.search.data.expansions.length));
    Object.assign(this.until, { max: most, value: most });
    this.rewind();
    this.search();
  }

  /** @param {SearchData | null | undefined} search */
  source(search) {
    return search ? search.text ?? search.source.join(" ") : "";
  }

  /** @param {number} id */
  go(id) {
    if (this.data.ids.includes(id)) location.hash = `sentence=${id}`;
    else this.say(`There is no sentence ${id}.`);
  }

  /** @param {number} by */
  turn(by) {
    const { ids } = this.data;
    const at = ids.indexOf(this.id) + by;
    if (at >= 0 && at < ids.length) this.go(ids[at]);
  }

  drop() {
    for (const view of this.views) {
      view.graph.dropped = /** @type {any} */ (this.dropped.value);
      view.redraw();
    }
  }

  /** Show the search as it was when so many prefixes had been expanded. */
  rewind() {
    const count = Number(this.until.value);
    const all = count >= Number(this.until.max);
    byId("count").textContent = all ? "all" : String(count);
    for (const { graph } of this.views) {
      const until = all ? Infinity : count;
      if (graph.until === until) continue;
      graph.until = until;
      graph.draw();
    }
  }

  search() {
    const term = this.term.value.toLowerCase();
    this.found = [];
    this.at = -1;
    for (const view of this.views) {
      const { search, graph } = view;
      const places = [...Array(search.size).keys()].filter(place => term !== "" && this.fits(search, place, term));
      if (graph.matches.size || places.length) {
        graph.matches = new Set(places);
        graph.draw();
      }
      this.found.push(...places.map(place => ({ view, place })));
    }
    this.sayMatches();
  }

  /** @param {Search} search @param {Place} place @param {string} term */
  fits(search, place, term) {
    const token = search.tree.token[place];
    return search.word(token).toLowerCase().includes(term) || String(token) === term;
  }

  /** @param {number} by */
  nextMatch(by) {
    if (!this.found.length) return;
    this.at = (this.at + by + this.found.length) % this.found.length;
    const { view, place } = this.found[this.at];
    view.reveal(place);
    this.sayMatches();
  }

  sayMatches() {
    const { length } = this.found;
    byId("matches").textContent = this.term.value === "" ? "" : this.at < 0 ? `${length} found` : `${this.at + 1} of ${length}`;
  }

  /** @param {(graph: Graph) => void} act */
  eachGraph(act) {
    for (const view of this.views) act(view.graph);
  }

  /** The graphs of two runs move together. @param {RunView} moved @param {any} transform */
  zoomed(moved, transform) {
    for (const view of this.views) if (view !== moved) view.graph.move(transform);
  }

  /** @param {Search} search @param {Place | null} place @param {number} x @param {number} y */
  hover(search, place, x, y) {
    this.tooltip.hidden = place === null;
    if (place === null) return;
    this.tooltip.replaceChildren(
      html("strong", {}, html("bdi", {}, search.label(place, 60))),
      html("div", {}, `total ${shownTotal(search, place)}`),
      html("div", {}, search.reason(place)),
      ...(search.tree.parent[place] < 0 ? [] : search.shares(place)).map(share => html("div", {},
        html("span", { class: `key ${series(search.run.predictors.indexOf(share.name))}` }),
        `${share.name}: ${share.weight} × ${shownScore(share.score)} = ${shownScore(share.weighted)}`)));
    const { width, height } = this.tooltip.getBoundingClientRect();
    this.tooltip.style.left = `${Math.min(x + 14, innerWidth - width - 8)}px`;
    this.tooltip.style.top = `${y + 18 + height > innerHeight ? y - height - 10 : y + 18}px`;
  }

  /** Tell readers of the screen. @param {string} text */
  say(text) {
    byId("status").textContent = text;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target instanceof HTMLInputElement && !["checkbox", "radio", "range"].includes(event.target.type)) return;
    if (event.target instanceof HTMLSelectElement) return;
    const act = {
      "/": () => this.term.focus(),
      n: () => this.turn(1),
      p: () => this.turn(-1),
      d: () => {
        this.dropped.selectedIndex = (this.dropped.selectedIndex + 1) % this.dropped.options.length;
        this.drop();
      },
      "+": () => this.eachGraph(graph => graph.scale(1.25)),
      "-": () => this.eachGraph(graph => graph.scale(0.8)),
      0: () => this.eachGraph(graph => graph.fit()),
      g: () => this.views[0]?.graph.root.focus(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

const viewer = new Viewer(JSON.parse(byId("data").textContent ?? ""));
