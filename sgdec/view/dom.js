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

/**
 * Make the buttons or links of an element one stop of the Tab key: arrows, Home and End move between them, up and
 * down by rows of a table or a list.
 * @template {HTMLElement} E
 * @param {E} element
 * @param {string} selector
 * @returns {E}
 */
function roving(element, selector) {
  const items = () => /** @type {HTMLElement[]} */ ([...element.querySelectorAll(selector)]);
  /** @param {HTMLElement} chosen */
  const stopAt = chosen => {
    for (const item of items()) item.tabIndex = item === chosen ? 0 : -1;
  };
  if (items().length) stopAt(items()[0]);
  element.addEventListener("focusin", event => {
    if (event.target instanceof HTMLElement && event.target.matches(selector)) stopAt(event.target);
  });
  element.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.target instanceof HTMLElement)) return;
    const target = beside(items(), event.target, event.key);
    if (!target) return;
    event.preventDefault();
    target.focus();
  });
  return element;
}

/** The item to which a key leads from another one. @param {HTMLElement[]} items @param {HTMLElement} from @param {string} key */
function beside(items, from, key) {
  const at = items.indexOf(from);
  if (at < 0) return undefined;
  /** @param {HTMLElement} item */
  const row = item => item.closest("tr, li") ?? item;
  const column = items.filter(item => row(item) === row(from)).indexOf(from);
  /** @param {HTMLElement | undefined} other */
  const inRow = other => {
    const found = other ? items.filter(item => row(item) === row(other)) : [];
    return found[Math.min(column, found.length - 1)];
  };
  switch (key) {
    case "ArrowLeft": return items[at - 1];
    case "ArrowRight": return items[at + 1];
    case "ArrowUp": return inRow(items.slice(0, at).reverse().find(item => row(item) !== row(from)));
    case "ArrowDown": return inRow(items.slice(at).find(item => row(item) !== row(from)));
    case "Home": return items[0];
    case "End": return items[items.length - 1];
    default: return undefined;
  }
}
