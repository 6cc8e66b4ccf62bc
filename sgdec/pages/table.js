// Tables of the class "sortable": the headings become buttons that sort the rows of the body.
// A cell is sorted by its attribute data-value if it has one, otherwise by its text. If all values of a column are
// numbers, the first click puts the highest first. Empty cells are always last, and equal rows keep their order.
// If the rows are sorted already, the attribute aria-sort of a heading says so.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    if (!heading.hasAttribute("aria-sort")) heading.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => sort(column));
  });

  function sort(column) {
    const body = table.tBodies[0];
    const keyed = [...body.rows].map(row => [key(row.cells[column]), row]);
    const filled = keyed.filter(([value]) => value !== "");
    const empty = keyed.filter(([value]) => value === "");
    const numeric = filled.every(([value]) => !Number.isNaN(Number(value)));
    const before = headings[column].getAttribute("aria-sort");
    const up = before === "none" ? !numeric : before === "descending";
    const compare = numeric ? (a, b) => a - b : (a, b) => a.localeCompare(b);
    filled.sort(([a], [b]) => (up ? 1 : -1) * compare(a, b));
    body.append(...[...filled, ...empty].map(([, row]) => row));
    for (const heading of headings) heading.setAttribute("aria-sort", "none");
    headings[column].setAttribute("aria-sort", up ? "ascending" : "descending");
  }

  function key(cell) {
    return (cell.dataset.value ?? cell.textContent).trim();
  }
}
