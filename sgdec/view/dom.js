// @ts-check
"use strict";

/**
 * An HTML element. Strings become text, never markup. Attributes that are functions are listeners.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | null | false)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * An SVG element, likewise.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | null | false)} children
 * @returns {SVGElementTagNameMap[T]}
 */
function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {Record<string, any>} attributes
 * @param {(Node | string | null | false)[]} children
 * @returns {E}
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children.filter(child => child !== null && child !== false));
  return element;
}

/** @param {string} id @returns {HTMLElement} */
function byId(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no element ${id}`);
  return element;
}

/**
 * A score as text, with a minus sign that is as wide as a digit.
 * @param {number | null | undefined} score
 * @param {number} [digits]
 */
function shownScore(score, digits = 3) {
  if (score === null || score === undefined) return "−∞";
  const text = score.toFixed(digits);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

/**
 * At most so many characters of a text.
 * @param {string} text
 * @param {number} longest
 */
function cut(text, longest) {
  if (text.length <= longest) return text;
  const signs = [...text.slice(0, 2 * longest)];
  return signs.length <= longest ? signs.join("") : signs.slice(0, longest - 1).join("") + "…";
}

/** The number as an ordinal place in a list: 1st, 2nd. @param {number} place */
function ordinal(place) {
  const teen = Math.floor(place / 10) % 10 === 1;
  return place + (teen ? "th" : ["th", "st", "nd", "rd"][place % 10] ?? "th");
}
