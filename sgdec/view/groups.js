// @ts-check
"use strict";

/** A prefix of more groups has no marks: there is no room for them. */
const MOST_MARKS = 8;
/** So many groups of a prefix are named. */
const MOST_NAMES = 8;

/**
 * The groups, draws, walks or particles that a note of the decoder names: a word and numbers at its beginning, as in
 * "group 2", "particles 3, 7" and "walk 1: step 4 accepted".
 * @param {string} note
 */
function named(note) {
  const [, word, numbers] = /^(\p{L}+) (\d+(?:, \d+)*)(?![^:,])/u.exec(note) ?? [];
  if (!word) return [];
  const found = numbers.split(", ");
  const one = found.length > 1 ? word.replace(/s$/, "") : word;
  return found.map(number => `${one} ${number}`);
}

/** Which prefixes belong to which group: those with a note that names it, and all before them. */
class Groups {
  /** @param {Record<string, string[]>} notes by place @param {Place[]} parent */
  constructor(notes, parent) {
    /** @type {Map<string, Set<Place>>} */
    this.members = new Map();
    for (const [place, list] of Object.entries(notes))
      for (const name of list.flatMap(named)) {
        const members = this.members.get(name) ?? new Set();
        for (let at = Number(place); at >= 0 && !members.has(at); at = parent[at]) members.add(at);
        this.members.set(name, members);
      }
    this.names = [...this.members.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    /** By place the numbers of its groups among the names. @type {Map<Place, number[]>} */
    this.numbers = new Map();
    this.names.forEach((name, number) => {
      for (const place of this.members.get(name) ?? [])
        this.numbers.set(place, [...this.numbers.get(place) ?? [], number]);
    });
  }

  /** @param {Place} place */
  of(place) {
    return this.numbers.get(place) ?? [];
  }

  /** The groups of a prefix in words, such as "groups 1, 3"; empty without any. @param {Place} place */
  text(place) {
    /** @type {Map<string, string[]>} */
    const words = new Map();
    for (const [word, number] of this.of(place).map(at => this.names[at].split(" ")))
      words.set(word, [...words.get(word) ?? [], number]);
    return [...words].map(([word, numbers]) => {
      const more = numbers.length - MOST_NAMES;
      const listed = numbers.slice(0, MOST_NAMES).join(", ");
      return `${word}${numbers.length > 1 ? "s" : ""} ${listed}${more > 0 ? ` and ${more} more` : ""}`;
    }).join(", ");
  }
}
