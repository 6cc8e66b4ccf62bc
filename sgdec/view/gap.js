// @ts-check
"use strict";

const PLOT = { width: 440, height: 220, left: 50, right: 76, top: 12, bottom: 44 };
const MOST_POINTS = 1000;

/**
 * The best hypothesis and the bound of what is still possible over the expansions: the search is a proof when they
 * meet. Null if the search has no bounds.
 * @param {Search} search
 */
function gapPlot(search) {
  const points = thinned(search.data.bounds);
  const values = points.flatMap(([, bound, best]) => [bound, best]).filter(value => value !== null);
  if (points.length < 2 || !values.length) return null;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const inner = { width: PLOT.width - PLOT.left - PLOT.right, height: PLOT.height - PLOT.top - PLOT.bottom };
  /** @param {number} count */
  const x = count => PLOT.left + inner.width * (count - first) / (last - first || 1);
  /** @param {number} value */
  const y = value => PLOT.top + inner.height * (high - value) / (high - low || 1);
  const lines = [{ name: "bound", at: 1, key: 0 }, { name: "best found", at: 2, key: 1 }];
  return html("figure", {},
    html("figcaption", {}, `Bound of what is still possible, and best hypothesis, over the expansions. ${verdict(search)}`),
    svg("svg", { class: "gap", width: PLOT.width, height: PLOT.height, viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, role: "img", "aria-label": `Gap: ${verdict(search)}` },
      ...d3.ticks(low, high, 4).map(tick => svg("g", { class: "axis" },
        svg("line", { x1: PLOT.left, x2: PLOT.left + inner.width, y1: y(tick), y2: y(tick) }),
        svg("text", { x: PLOT.left - 6, y: y(tick), class: "row" }, String(tick).replace("-", "−")))),
      ...d3.ticks(first, last, 5).map(tick => svg("text",
        { class: "axis column", x: x(tick), y: PLOT.height - PLOT.bottom + 16 }, tick.toLocaleString("en"))),
      svg("text", { class: "axis column", x: PLOT.left + inner.width / 2, y: PLOT.height - 10 }, "expansions"),
      ...lines.flatMap(({ name, at, key }) => {
        const seen = points.flatMap(point => point[at] === null ? [] : [[x(point[0]), y(Number(point[at]))]]);
        if (!seen.length) return [];
        const end = seen[seen.length - 1];
        return [
          svg("path", { class: `line ${series(key)}`, d: steps(seen) }),
          svg("text", { class: `end ${series(key)}`, x: end[0] + 6, y: end[1] + (at === 1 ? -7 : 7) }, name),
        ];
      })));
}

/** @param {Search} search */
function verdict(search) {
  const { proven, gap } = search.data;
  if (proven) return "The best hypothesis is proven.";
  return gap === null ? "Nothing is proven." : `Not proven: a better one by at most ${shownScore(gap)} is possible.`;
}

/** A line that keeps its value until the next point. @param {number[][]} points */
function steps(points) {
  return points.map(([x, y], i) => i ? `H${x}V${y}` : `M${x},${y}`).join("");
}

/** At most `MOST_POINTS` of them, with the last. @template T @param {T[]} points */
function thinned(points) {
  const every = Math.ceil(points.length / MOST_POINTS);
  return points.filter((_, i) => i % every === 0 || i === points.length - 1);
}
