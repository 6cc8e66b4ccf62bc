// @ts-check
"use strict";

/**
 * The data of a sentence. The page holds them as JSON, packed by gzip, in base64, and unpacks those of one sentence
 * at a time. Throws an error for readers if that is not possible.
 * @param {number} id
 * @returns {Promise<SentenceData>}
 */
async function unpacked(id) {
  if (typeof DecompressionStream === "undefined")
    throw new Error("This browser is too old to unpack the page. Open it with one of 2024 or later.");
  try {
    const text = atob(byId(`sentence-${id}`).textContent ?? "");
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  } catch {
    throw new Error(`Sentence ${id} cannot be read: this file is damaged. Write the page again with sgdec view.`);
  }
}
