// @ts-check
"use strict";

const CELL = 20;
const ATTENTION_LABEL = 12;

/**
 * A heat map for each predictor with attention: source tokens above, the tokens of the prefix on the left.
 * @param {Search} search
 * @param {Place} place
 */
function attentionMaps(search, place) {
  const steps = search.path(place).slice(1);
  const rows = steps.map(step => search.expansion(search.tree.parent[step])?.attention ?? {});
  const names = search.run.predictors.filter(name => rows.some(row => row[name]));
  return names.map(name => html("figure", {},
    html("figcaption", {}, `Attention of ${name}: the stronger the colour, the more weight.`),
    attentionMap(search, steps, rows.map(row => row[name] ?? []))));
}

/** @param {Search} search @param {Place[]} steps @param {number[][]} rows */
function attentionMap(search, steps, rows) {
  const width = Math.max(...rows.map(row => row.length));
  const source = Array.from({ length: width }, (_, j) => cut(search.data.source[j] ?? "</s>", ATTENTION_LABEL));
  const labels = steps.map(step => search.label(step, ATTENTION_LABEL));
  ruler.font = FONT;
  /** @param {string[]} texts */
  const longest = texts => Math.max(...texts.map(text => ruler.measureText(text).width));
  const [left, top] = [longest(labels) + 8, longest(source) * 0.75 + 16];
  const [total, high] = [left + width * CELL + longest(source) * 0.75, top + rows.length * CELL];
  return svg("svg", {
    class: "attention", width: total, height: high, viewBox: `0 0 ${total} ${high}`, role: "img",
    "aria-label": `Attention of ${rows.length} tokens over ${width} source tokens`,
  },
    ...source.map((text, j) => svg("text",
      { transform: `translate(${left + (j + 0.6) * CELL},${top - 6}) rotate(-45)` }, text)),
    ...rows.flatMap((row, i) => [
      svg("text", { class: "row", x: left - 6, y: top + (i + 0.5) * CELL }, labels[i]),
      ...row.map((weight, j) => svg("rect",
        { x: left + j * CELL, y: top + i * CELL, width: CELL - 1, height: CELL - 1, "fill-opacity": 0.04 + 0.96 * weight },
        svg("title", {}, `${labels[i]} ← ${source[j]}: ${weight.toFixed(2)}`))),
    ]));
}
