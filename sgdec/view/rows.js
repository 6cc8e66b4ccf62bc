// @ts-check
"use strict";

/**
 * The row of each shown prefix, as `rows` of layout.py computes it: the first child is in the row of its parent, the
 * others are moved down with their subtrees until they are clear of those of their siblings.
 * @param {Place[]} parent
 * @param {Place[]} shown in ascending order, with their parents
 * @returns {Map<Place, number>}
 */
function rowsOf(parent, shown) {
  /** @type {Map<Place, Place[]>} */
  const children = new Map([-1, ...shown].map(place => [place, []]));
  for (const place of shown) children.get(parent[place])?.push(place);
  /** The first and the last row of a subtree in each of its columns. @type {Map<Place, {tops: number[], bottoms: number[]}>} */
  const outlines = new Map();
  const shifts = new Map();
  for (const place of [-1, ...shown].reverse()) {
    /** @type {number[]} */
    let tops = [];
    /** @type {number[]} */
    let bottoms = [];
    for (const child of children.get(place) ?? []) {
      const below = outlines.get(child) ?? { tops: [], bottoms: [] };
      outlines.delete(child);
      const shift = Math.max(0, ...below.tops.flatMap((top, i) => i < bottoms.length ? [bottoms[i] + 1 - top] : []));
      tops = [...tops, ...below.tops.slice(tops.length).map(row => row + shift)];
      bottoms = [...below.bottoms.map(row => row + shift), ...bottoms.slice(below.bottoms.length)];
      shifts.set(child, shift);
    }
    outlines.set(place, { tops: [0, ...tops], bottoms: [0, ...bottoms] });
  }
  const rows = new Map();
  for (const place of shown) rows.set(place, shifts.get(place) + (rows.get(parent[place]) ?? 0));
  return rows;
}
