// @ts-check
"use strict";

/**
 * Two runs: where their outputs part, and why a run lacks the other's output.
 * @param {PartingData} parting
 * @param {Search[]} searches
 * @param {(run: number, place: Place) => void} select
 */
function partingPanel(parting, searches, select) {
  return html("div", { class: "parting" },
    html("p", {}, ...meeting(parting, searches)),
    ...parting.missed.map((missed, run) => {
      if (missed === null || parting.step === null) return null;
      return html("p", {}, ...account(searches[run], `Run ${run + 1}`, searches[1 - run], `run ${2 - run}`, missed),
        html("button", { type: "button", click: () => select(run, missed[0]) }, "Show"));
    }));
}

/** @param {PartingData} parting @param {Search[]} searches @returns {(Node | string)[]} */
function meeting({ step }, searches) {
  if (searches.some(search => !search.data.hypotheses.length)) return ["A run has no output."];
  if (step === null) return ["Both runs have the same output."];
  const [one, other] = searches.map(search => {
    const { tokens } = search.data.hypotheses[0];
    return html("bdi", { class: "token" }, cut(search.word(tokens[step] ?? EOS), 60));
  });
  return [`The outputs part at token ${step + 1}: run 1 has `, one, ", run 2 has ", other, "."];
}

/** By how much each predictor differs. @param {PartingData} parting @param {Search[]} searches */
function differences({ sums }, searches) {
  if (searches.some(search => !search.data.hypotheses.length)) return null;
  const names = [...new Set(sums.flatMap(each => Object.keys(each)))];
  if (!names.length) return null;
  const totals = searches.map(search => search.data.hypotheses[0]?.score ?? null);
  /** @param {string} name @param {(number | null | undefined)[]} values */
  const row = (name, [one, other]) => html("tr", {},
    html("th", { scope: "row" }, name),
    ...[one, other].map(value => html("td", { class: "number" }, value === undefined ? "–" : shownScore(value))),
    html("td", { class: "number" }, compared(one, other)));
  return html("table", { class: "differences" },
    html("caption", {}, "Weighted scores of the best hypotheses"),
    html("thead", {}, html("tr", {}, html("th", { scope: "col" }, "predictor"),
      ...["run 1", "run 2", "run 2 − run 1"].map(title => html("th", { scope: "col", class: "number" }, title)))),
    html("tbody", {}, ...names.map(name => row(name, sums.map(each => each[name]))), row("total", totals)));
}

/** The difference of two numbers; an undefined one counts as 0. @param {number | null | undefined} one @param {number | null | undefined} other */
function compared(one, other) {
  return one === null || other === null ? "–" : shownScore((other ?? 0) - (one ?? 0));
}

/**
 * Why a run does not have the other's output first.
 * @param {Search} search
 * @param {string} name
 * @param {Search} other
 * @param {string} otherName
 * @param {[Place, boolean]} missed
 */
function account(search, name, other, otherName, [place, complete]) {
  if (complete)
    return [`${name} reached the output of ${otherName}, and does not have it first: ${search.reason(place)}. `];
  const prefix = html("bdi", { class: "token" }, search.text(place) || "<s>");
  if (!search.expansion(place))
    return [`${name} lost the output of ${otherName} at `, prefix, `: ${search.reason(place)}. `];
  const next = other.word(other.data.hypotheses[0].tokens[search.lengths[place]] ?? EOS);
  return [`${name} lost the output of ${otherName} after `, prefix, ". The next token, ",
    html("bdi", { class: "token" }, cut(next, 60)), `, ${search.absence(place, next)}. `];
}
