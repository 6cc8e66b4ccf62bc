// @ts-check
"use strict";

const BAR = { width: 160, height: 18 };
/** Scores of a trace have six decimals. */
const ROUNDING = 2e-6;

/** The class that colours everything of a predictor. @param {number} k */
function series(k) {
  return `series-${(k % 8) + 1}`;
}

/**
 * A table of the steps of a prefix: what each predictor adds, the runner-up, and what each predictor alone wants.
 * @param {Search} search
 * @param {Place} place
 * @param {(place: Place) => void} select
 */
function ledger(search, place, select) {
  const steps = search.path(place).slice(1);
  if (!steps.length) return html("p", { class: "muted" }, "The empty prefix has no steps.");
  const names = search.run.predictors;
  const where = steps.some(step => search.expansion(search.tree.parent[step])?.where);
  const alone = steps.some(step => choices(search, step).length);
  const scale = barScale(search, steps);
  const head = html("thead", {}, html("tr", {},
    ...["step", "token", "weighted scores"].map(title => html("th", { scope: "col" }, title)),
    ...names.map((name, k) => html("th", { scope: "col", class: "number" },
      html("span", { class: `key ${series(k)}` }), name, weightOf(search.run.weights[k]))),
    html("th", { scope: "col", class: "number" }, "total so far"),
    html("th", { scope: "col", class: "words" }, "best other"),
    alone && html("th", { scope: "col", class: "words" }, "alone"),
    where && html("th", { scope: "col" }, "place"),
  ));
  const body = html("tbody", {}, ...steps.map((step, number) => {
    const shares = search.shares(step);
    return html("tr", { "data-place": step },
      html("td", { class: "number" }, String(number + 1)),
      html("td", {}, tokenButton(search, step, select)),
      html("td", {}, bar(search, shares, scale)),
      ...names.map(name => html("td", { class: "number" },
        shownShare(shares.find(share => share.name === name), search.tree.scores[step]))),
      html("td", { class: "number total" }, shownTotal(search, step)),
      html("td", { class: "words" }, runnerUp(search, step, select)),
      alone && html("td", { class: "words alone" }, ...choices(search, step)),
      where && html("td", {}, places(search, step)),
    );
  }));
  return roving(html("table", { class: "ledger" }, head, body, sumsOf(search, steps)), "button");
}

/** The last line: the sums by predictor, if all steps are recorded. @param {Search} search @param {Place[]} steps */
function sumsOf(search, steps) {
  if (steps.some(step => !search.tree.scores[step].length)) return null;
  const sums = search.run.predictors.map(name => steps.reduce(
    (sum, step) => sum + (search.shares(step).find(share => share.name === name)?.weighted ?? 0), 0));
  return html("tfoot", {}, html("tr", {},
    html("th", { scope: "row", colspan: 3 }, "sum"),
    ...sums.map(sum => html("td", { class: "number sum" }, shownScore(sum))),
    html("td", { class: "number sum" }, shownScore(sums.reduce((one, other) => one + other, 0)))));
}

/** @param {number | null} weight */
function weightOf(weight) {
  return weight === 1 || weight === null ? "" : ` × ${weight}`;
}

/** @param {Search} search @param {Place} place */
function shownTotal(search, place) {
  const total = search.tree.total[place];
  return total === null && search.tree.scores[place].length === 0 ? "not recorded" : shownScore(total);
}

/** @param {Share | undefined} share @param {(number | null)[]} scores */
function shownShare(share, scores) {
  if (share) return shownScore(Number.isFinite(share.weighted) ? share.weighted : null);
  return scores.length ? "–" : "";
}

/** A token that shows its prefix. @param {Search} search @param {Place} place @param {(place: Place) => void} select */
function tokenButton(search, place, select) {
  return html("button", { type: "button", class: "token", click: () => select(place) }, search.label(place));
}

/** The widest negative and positive sums of a step, which share the width of a bar. @param {Search} search @param {Place[]} steps */
function barScale(search, steps) {
  let [low, high] = [0, 0];
  for (const step of steps) {
    const weighted = search.shares(step).map(share => share.weighted).filter(Number.isFinite);
    low = Math.min(low, weighted.filter(x => x < 0).reduce((a, b) => a + b, 0));
    high = Math.max(high, weighted.filter(x => x > 0).reduce((a, b) => a + b, 0));
  }
  const unit = BAR.width / (high - low || 1);
  return { unit, zero: -low * unit };
}

/** Stacked bars: from zero to the left what is negative, to the right what is positive.
 * @param {Search} search @param {Share[]} shares @param {{unit: number, zero: number}} scale */
function bar(search, shares, { unit, zero }) {
  const picture = svg("svg", {
    class: "bar", width: BAR.width, height: BAR.height, role: "img",
    "aria-label": shares.map(share => `${share.name} ${shownScore(share.weighted)}`).join(", "),
  });
  let [left, right] = [zero, zero];
  for (const share of shares) {
    if (!Number.isFinite(share.weighted)) continue;
    const width = Math.abs(share.weighted) * unit;
    if (share.weighted < 0) left -= width;
    const k = search.run.predictors.indexOf(share.name);
    picture.append(svg("rect",
      { class: series(k), x: share.weighted < 0 ? left : right, y: 2, width, height: BAR.height - 4 },
      svg("title", {}, `${share.name}: ${share.weight} × ${shownScore(share.score)} = ${shownScore(share.weighted)}`)));
    if (share.weighted > 0) right += width;
  }
  picture.append(svg("line", { class: "zero", x1: zero, x2: zero, y1: 0, y2: BAR.height }));
  return picture;
}

/** The best other continuation, how far it is behind or ahead, and what became of it.
 * @param {Search} search @param {Place} step @param {(place: Place) => void} select */
function runnerUp(search, step, select) {
  const { parent, total } = search.tree;
  const others = search.children[parent[step]].filter(other => other !== step && total[other] !== null);
  if (!others.length) return html("span", { class: "muted" }, "none");
  const best = others.reduce((one, other) => Number(total[other]) > Number(total[one]) ? other : one);
  const behind = Number(total[best]) - Number(total[step]);
  return html("span", {},
    tokenButton(search, best, select),
    ` ${behind > 0 ? "+" : ""}${shownScore(behind)} `,
    html("span", { class: "muted" }, search.fate(best)));
}

/** What each predictor alone would have chosen, if it scores that higher. Nothing is said where the trace
 * does not know it of all of them. @param {Search} search @param {Place} step */
function choices(search, step) {
  const alone = search.expansion(search.tree.parent[step])?.alone ?? [];
  const names = search.run.predictors;
  const found = alone.flatMap((choice, k) => {
    const weight = search.weights(search.tree.parent[step])[k] ?? 0;
    const own = search.tree.scores[step][k] ?? -Infinity;
    if (choice === null || weight * (Number(choice[1]) - own) < ROUNDING * Math.abs(weight)) return [];
    const [token, score, forbidding] = choice;
    const by = forbidding.map(number => names[number]).join(", ");
    return [html("div", {},
      html("span", { class: `key ${series(k)}` }), `${names[k]}: `,
      html("bdi", { class: "token" }, search.word(token)), ` ${shownScore(weight * Number(score))}`,
      by !== "" && html("span", { class: "forbidden" }, ` forbidden by ${by}`))];
  });
  const known = alone.length && alone.every(choice => choice !== null);
  return found.length || !known ? found : [html("span", { class: "muted" }, "the same")];
}

/** @param {Search} search @param {Place} step */
function places(search, step) {
  const where = search.expansion(search.tree.parent[step])?.where ?? {};
  return Object.entries(where).map(([name, place]) => `${name} ${place}`).join(", ");
}
