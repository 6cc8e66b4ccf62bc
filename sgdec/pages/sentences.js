// The controls above a table of sentences. A row is shown if a cell has the text that was typed, if the row is of the
// chosen kind (data-kinds has its number), and if its outputs differ (no data-equal) or the box for equal ones is checked.
// Labels and deleted words do not count as text, so a phrase is found in an output that is shown as changes of another.
"use strict";
for (const controls of document.querySelectorAll(".controls[data-table]")) {
  const table = document.getElementById(controls.dataset.table);
  const rows = [...table.tBodies[0].rows];
  const [typed, kind, equal, said] = ["[type=search]", "select", "[type=checkbox]", "output"].map(
    selector => controls.querySelector(selector));
  let texts; // of each row the texts of its cells; made when they are needed first, since they take as much space as the page
  let waiting;

  typed.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(show, 100);
  });
  controls.addEventListener("change", show);
  controls.hidden = false;
  show();

  function show() {
    const wanted = plain(typed.value);
    if (wanted) texts ??= rows.map(row => [...row.cells].map(text).join("\n"));
    let shown = 0, hidden = 0;
    rows.forEach((row, place) => {
      const found = (!wanted || texts[place].includes(wanted))
        && (!kind?.value || row.dataset.kinds.split(" ").includes(kind.value));
      const agrees = "equal" in row.dataset && !equal?.checked;
      row.hidden = !found || agrees;
      shown += found && !agrees;
      hidden += found && agrees;
    });
    table.parentElement.scrollTop = 0;
    const number = count => count.toLocaleString("en");
    said.textContent = `${number(shown)} of ${number(rows.length)} shown`
      + (hidden ? `; ${number(hidden)} with equal outputs hidden` : "");
  }

  function text(cell) {
    const copy = cell.cloneNode(true);
    for (const other of copy.querySelectorAll("del, .muted")) other.remove();
    return plain(copy.textContent);
  }

  function plain(text) {
    return text.normalize("NFKC").toLowerCase().replace(/\s+/g, " ").trim();
  }
}
