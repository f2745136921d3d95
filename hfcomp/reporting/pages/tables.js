// Tables of the class `sorted`: a click on a heading sorts by its column, the next one the other way round, a third one
// brings back the order of the report.

// The first number of a cell: 94 of "94.0 [92.1, 95.9]"; a little less than the bound of "<0.001"; none of "-".
function numberOf(text) {
  const found = /(<?)\s*([+-]?\d+(?:\.\d+)?)/.exec(text.replaceAll(",", ""));
  return found ? Number(found[2]) - (found[1] ? 1e-9 : 0) : null;
}

function sortRows(body, rows, column, isNumeric, sign) {
  const key = (row) => (isNumeric ? numberOf(row.cells[column].textContent) : row.cells[column].textContent);
  const known = new Map(rows.map((row) => [row, key(row)]));
  const compare = (one, other) => {
    const [first, second] = [known.get(one), known.get(other)];
    if (first === null || second === null) return (first === null) - (second === null); // unknown ones come last
    return sign * (isNumeric ? first - second : first.localeCompare(second, "en", { numeric: true }));
  };
  body.replaceChildren(...(sign ? [...rows].sort(compare) : rows));
}

function makeSortable(table) {
  const [body] = table.tBodies;
  const rows = [...body.rows];
  if (rows.length < 2) return;
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const isNumeric = head.classList.contains("number");
    const ways = isNumeric ? ["descending", "ascending"] : ["ascending", "descending"]; // the highest values first
    const button = element("button", { type: "button", class: "sort", title: "Sort" }, head.textContent || "name");
    if (!head.textContent) button.classList.add("unnamed");
    button.addEventListener("click", () => {
      const way = [...ways, null][(ways.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
      for (const one of heads) one.removeAttribute("aria-sort");
      if (way) head.setAttribute("aria-sort", way);
      sortRows(body, rows, column, isNumeric, { ascending: 1, descending: -1 }[way] || 0);
    });
    head.replaceChildren(button);
  });
}

for (const table of document.querySelectorAll("table.sorted")) makeSortable(table);
