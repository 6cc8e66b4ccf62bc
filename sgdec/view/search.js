// @ts-check
"use strict";

const EOS = 2;
/** So many notes of a prefix are shown beside it. */
const MOST_NOTES = 3;

/** One sentence of one run: its prefixes, with what the trace says about them. */
class Search {
  /**
   * @param {SearchData} data
   * @param {RunData} run
   * @param {Record<string, string>} reasons
   */
  constructor(data, run, reasons) {
    this.data = data;
    this.run = run;
    this.tree = data.tree;
    this.reasons = reasons;
    this.size = data.tree.parent.length;
    /** @type {number[]} */
    this.lengths = [];
    /** @type {Place[][]} */
    this.children = this.tree.parent.map(() => []);
    this.tree.parent.forEach((parent, place) => {
      this.lengths.push(parent < 0 ? 0 : this.lengths[parent] + 1);
      if (parent >= 0) this.children[parent].push(place);
    });
    this.groups = new Groups(data.notes, this.tree.parent);
    /** The best hypothesis; undefined if there is none. */
    this.best = data.hypotheses[0]?.place ?? undefined;
  }

  /** The token as text, uncut. @param {number} token */
  word(token) {
    if (token < 0) return "<s>";
    return token === EOS ? "</s>" : this.run.pieces[token] ?? String(token);
  }

  /** @param {Place} place @param {number} [longest] */
  label(place, longest = 10_000) {
    const { token, parent } = this.tree;
    if (parent[place] >= 0) return cut(this.word(token[place]), longest);
    const names = this.run.predictors.filter((_, k) => this.weights(place)[k] !== null);
    return names.length < this.run.predictors.length ? cut(`<s> ${names.join()}`, longest) : "<s>";
  }

  /** The prefixes from the root to this one. @param {Place} place */
  path(place) {
    const found = [];
    for (let at = place; at >= 0; at = this.tree.parent[at]) found.push(at);
    return found.reverse();
  }

  /** @param {Place} place */
  text(place) {
    return this.path(place).slice(1).map(at => this.label(at)).join(" ");
  }

  /** @param {Place} place @returns {ExpansionData | undefined} */
  expansion(place) {
    return this.data.expansions[this.tree.expansion[place]];
  }

  /** The weights under which the continuations of a prefix are scored. @param {Place} place */
  weights(place) {
    return this.expansion(place)?.weights ?? this.run.weights;
  }

  /** What each predictor adds to the total with the last token. @param {Place} place @returns {Share[]} */
  shares(place) {
    const weights = this.weights(this.tree.parent[place]);
    return this.run.predictors.flatMap((name, k) => {
      const weight = weights[k];
      const score = this.tree.scores[place][k];
      if (weight === null || score === undefined) return [];
      return [{ name, weight, score, weighted: weight * (score ?? -Infinity) }];
    });
  }

  /** Whether it was expanded or is a hypothesis of the list. @param {Place} place */
  kept(place) {
    return this.tree.expansion[place] >= 0 || this.tree.rank[place] >= 0;
  }

  /** What became of it: a word that all prefixes with this fate share. @param {Place} place */
  fate(place) {
    return this.tree.rank[place] >= 0 ? "listed" : this.tree.fate[place] ?? "expanded";
  }

  /** What became of it, in words, with its groups and the first notes of the decoder. @param {Place} place */
  reason(place) {
    const notes = this.notes(place);
    const more = notes.length - MOST_NOTES;
    return [
      this.became(place), this.groups.text(place), ...notes.slice(0, MOST_NOTES), more > 0 && `${more} more notes`,
    ].filter(Boolean).join("; ");
  }

  /** The notes of the decoder that say more than its groups. @param {Place} place */
  notes(place) {
    return (this.data.notes[place] ?? []).filter(note => !/^\p{L}+ [\d, ]+$/u.test(note));
  }

  /** @param {Place} place */
  became(place) {
    const { expansion, rank, times } = this.tree;
    if (rank[place] >= 0) return `${ordinal(rank[place] + 1)} of the n-best list`;
    if (expansion[place] >= 0) {
      const again = times[place] > 1 ? `, ${times[place]} times` : "";
      return `expanded as number ${expansion[place]}${again}`;
    }
    const into = this.data.recombined.find(([from]) => from === place);
    if (into) return `recombined with “${this.text(into[1])}”`;
    return this.why(this.fate(place));
  }

  /** Whether the listed continuations of a prefix are all that no predictor forbids. @param {Place} place */
  listsAll(place) {
    const listed = this.children[place].length;
    return listed >= (this.expansion(place)?.candidates ?? 0) || listed < this.run.children;
  }

  /** Why a prefix has no listed continuation with this token. Names only predictors that the trace names.
   * @param {Place} place @param {string} word */
  absence(place, word) {
    const expansion = this.expansion(place);
    if (!expansion) return "was not scored";
    if (expansion.ending && word !== this.word(EOS))
      return `exceeds the length limit of ${this.data.limit} ${this.data.limit === 1 ? "token" : "tokens"}: only </s> can follow`;
    const choice = (expansion.alone ?? []).find(choice => choice && this.word(choice[0]) === word);
    if (choice && choice[2].length) return `is forbidden by ${choice[2].map(k => this.run.predictors[k]).join(" and ")}`;
    if (this.listsAll(place)) {
      const consulted = this.run.predictors.filter((_, k) => this.weights(place)[k] !== null);
      return consulted.length === 1 ? `is forbidden by ${consulted[0]}`
        : "is forbidden; the trace does not say by which predictor";
    }
    const unless = choice ? "" : "; unless a predictor forbids it";
    return `is not among the continuations that the trace lists: ${this.why(expansion.rest)}${unless}`;
  }

  /** A fate in words; decoders of third parties can have their own. @param {string} fate */
  why(fate) {
    return this.reasons[fate] ?? fate;
  }
}
