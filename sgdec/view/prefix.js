// @ts-check
"use strict";

/**
 * What is known of one prefix: its expansion, and all its listed continuations with what became of each.
 * @param {Search} search
 * @param {Place} place
 * @param {(place: Place) => void} select
 */
function prefixPanel(search, place, select) {
  const expansion = search.expansion(place);
  return html("div", { class: "prefix" },
    html("p", {}, html("bdi", { class: "text" }, search.text(place) || "the empty prefix")),
    html("dl", {}, ...facts(search, place, expansion).flatMap(
      ([name, value]) => [html("dt", {}, name), html("dd", {}, value)])),
    expansion ? continuations(search, place, expansion, select) : html("p", { class: "muted" },
      search.tree.token[place] === EOS ? "It is finished." : "It was not expanded."),
  );
}

/**
 * @param {Search} search
 * @param {Place} place
 * @param {ExpansionData | undefined} expansion
 * @returns {[string, string][]}
 */
function facts(search, place, expansion) {
  /** @type {[string, string][]} */
  const found = [["fate", search.became(place)], ["total", shownTotal(search, place)]];
  const groups = search.groups.text(place);
  if (groups) found.push(["belongs to", groups]);
  if (search.notes(place).length) found.push(["notes", search.notes(place).join("; ")]);
  if (!expansion) return found;
  if (expansion.ending) found.push(["length", "at the limit: only </s> can follow"]);
  for (const [name, state] of Object.entries(expansion.where ?? {})) found.push([`place in ${name}`, state]);
  if (expansion.weights)
    found.push(["weights", search.run.predictors.map((name, k) => `${name} ${expansion.weights?.[k] ?? "off"}`).join(", ")]);
  if (expansion.batch) {
    const [number, rows, seconds] = expansion.batch;
    found.push(["scored in", `batch ${number}: ${rows} ${rows === 1 ? "row" : "rows"}, ${(1000 * seconds).toFixed(1)} ms`]);
  }
  return found;
}

/**
 * @param {Search} search
 * @param {Place} place
 * @param {ExpansionData} expansion
 * @param {(place: Place) => void} select
 */
function continuations(search, place, expansion, select) {
  const { total, scores } = search.tree;
  const children = [...search.children[place]].sort((a, b) => (total[b] ?? -Infinity) - (total[a] ?? -Infinity));
  const rest = expansion.candidates - children.length;
  const caption = rest > 0
    ? `${children.length} of ${expansion.candidates} candidates; the others: ${search.listsAll(place) ? "forbidden" : search.why(expansion.rest)}`
    : `all ${expansion.candidates} allowed ${expansion.candidates === 1 ? "token" : "tokens"}`;
  return roving(html("table", { class: "continuations" },
    html("caption", {}, caption),
    html("thead", {}, html("tr", {},
      html("th", { scope: "col" }, "token"),
      html("th", { scope: "col", class: "number" }, "total"),
      ...search.run.predictors.map((name, k) => html("th", { scope: "col", class: "number" },
        html("span", { class: `key ${series(k)}` }), name)),
      html("th", { scope: "col" }, "fate"))),
    html("tbody", {}, ...children.map(child => html("tr", { class: search.kept(child) ? "kept" : "dropped" },
      html("td", {}, tokenButton(search, child, select)),
      html("td", { class: "number" }, shownTotal(search, child)),
      ...search.run.predictors.map((_, k) => html("td", { class: "number" },
        scores[child].length ? shownScore(scores[child][k]) : "")),
      html("td", { title: search.reason(child) },
        [shortFate(search, child), search.groups.text(child)].filter(Boolean).join(" · ")))))), "button");
}

/** The fate in a word or two. @param {Search} search @param {Place} place */
function shortFate(search, place) {
  const { rank, expansion } = search.tree;
  if (rank[place] >= 0) return `${ordinal(rank[place] + 1)} of the list`;
  return expansion[place] >= 0 ? `expanded as ${expansion[place]}` : search.fate(place);
}
