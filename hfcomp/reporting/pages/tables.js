// Tables with the class `sorted`: a click on a heading sorts by its column, a second click reverses the order, and a
// third click restores the order of the report.

// The first number in a cell: 94 for "94.0 [92.1, 95.9]", slightly less than the bound for "<0.001", null for "-".
function numberOf(text) {
  const match = /(<?)\s*([+-]?\d+(?:\.\d+)?)/.exec(text.replaceAll(",", ""));
  return match ? Number(match[2]) - (match[1] ? 1e-9 : 0) : null;
}

function sortRows(body, rows, column, isNumeric, sign) {
  const key = (row) => (isNumeric ? numberOf(row.cells[column].textContent) : row.cells[column].textContent);
  const known = new Map(rows.map((row) => [row, key(row)]));
  const compare = (a, b) => {
    const [first, second] = [known.get(a), known.get(b)];
    if (first === null || second === null) return (first === null) - (second === null); // unknown values come last
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
      for (const other of heads) other.removeAttribute("aria-sort");
      if (way) head.setAttribute("aria-sort", way);
      sortRows(body, rows, column, isNumeric, { ascending: 1, descending: -1 }[way] || 0);
    });
    head.replaceChildren(button);
  });
}

for (const table of document.querySelectorAll("table.sorted")) makeSortable(table);
