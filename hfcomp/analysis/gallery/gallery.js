// Loaded after list.js. A row has these scores per model: the cosines of the image with the caption and with each
// negative caption, those of the negative image with the caption and with the first negative caption, and two verdicts
// (1, 0, or -1 for a tie): whether the caption beats all negative captions, and whether it beats the negative image.
const about = readData("about");
const pictures = readData("pictures");
const rows = readData("data");
const models = about.models;
const OWN = 0, NEGATIVES = 1, ELSEWHERE = 2, WRONG = 3, BY_CAPTIONS = 4, BY_IMAGES = 5;
const KEEP = "keep", DROP = "drop";

// ---- numbers ----

const judged = () => byId("judge").value;

function verdict(row, model) {
  const own = row.scores && row.scores[model];
  if (!own) return null;
  const found = [];
  if (judged() !== "images" && own[BY_CAPTIONS] !== null) found.push(own[BY_CAPTIONS]);
  if (judged() !== "captions" && own[BY_IMAGES] !== null) found.push(own[BY_IMAGES]);
  if (!found.length) return null;
  return found.includes(0) ? 0 : found.includes(-1) ? -1 : 1;
}

function margin(row, model) {
  const own = row.scores && row.scores[model];
  if (!own || verdict(row, model) === null) return null;
  const others = [];
  if (judged() !== "images" && own[BY_CAPTIONS] !== null) others.push(...own[NEGATIVES].filter((one) => one !== null));
  if (judged() !== "captions" && own[BY_IMAGES] !== null) others.push(own[ELSEWHERE]);
  return own[OWN] - Math.max(...others);
}

function hasChanged(row) {
  const [first, second] = [verdict(row, 0), verdict(row, 1)];
  return first !== null && second !== null && (first === 1) !== (second === 1);
}

function score(cosine, model) {
  if (cosine === null || cosine === undefined) return "";
  return byId("unit").value === "logit" ? (models[model].scale * cosine + models[model].bias).toFixed(2) : cosine.toFixed(3);
}

function difference(cosine, model) {
  if (cosine === null) return "";
  const text = byId("unit").value === "logit" ? (models[model].scale * cosine).toFixed(2) : cosine.toFixed(4);
  return cosine > 0 ? `+${text}` : text;
}

const WORDS = { "1": "right", "0": "wrong", "-1": "tie" };

// ---- one row ----

const ownScore = (own) => own[OWN];

// One cell per model. A rival of the caption is marked wrong if its score is not lower.
function cells(row, of, isRival = false) {
  if (!row.scores) return [];
  return models.map((_, model) => {
    const own = row.scores[model];
    const cosine = own ? of(own) : null;
    const isWrong = isRival && cosine !== null && own[OWN] !== null && cosine >= own[OWN];
    return element("td", { class: isWrong ? "number wrong" : "number" }, score(cosine, model));
  });
}

function texts(row) {
  const lines = [textLine("caption", [row.caption === null ? "no caption" : row.caption], cells(row, ownScore))];
  for (const text of row.positives) lines.push(textLine("also true", [text], cells(row, () => null)));
  row.negatives.forEach((negative, place) => {
    const facts = negative.facts ? [element("small", null, negative.facts)] : [];
    lines.push(textLine("not", [...changedText(negative.changes), ...facts], cells(row, (own) => own[NEGATIVES][place], true)));
  });
  if (row.scores && row.scores.some((own) => own && own[ELSEWHERE] !== null)) {
    lines.push(textLine("negative image", ["with the caption"], cells(row, (own) => own[ELSEWHERE], true)));
    lines.push(textLine("", ["with the negative caption"], cells(row, (own) => own[WRONG])));
  }
  if (row.scores) {
    const found = models.map((_, model) => {
      const known = verdict(row, model);
      const kind = known === null ? "number" : known === 1 ? "number right" : "number wrong";
      return element("td", { class: kind }, difference(margin(row, model), model));
    });
    lines.push(textLine("margin", [""], found, "margin"));
  }
  const head = models.map((one) => element("th", { class: "number", title: one.place }, one.name));
  return element("table", null, row.scores ? element("thead", null, element("tr", null, element("th"), element("th"), ...head)) : null,
    element("tbody", null, ...lines));
}

function facts(row) {
  const found = row.facts.map(([name, value]) => element("div", null, element("dt", null, name), element("dd", null, value)));
  return found.length ? element("dl", { class: "facts" }, ...found) : null;
}

function verdicts(row) {
  return models.map((one, model) => {
    const found = verdict(row, model);
    if (found === null) return null;
    const text = models.length > 1 ? `${one.name}: ${WORDS[found]}` : WORDS[found];
    return element("span", { class: found === 1 ? "verdict right" : "verdict wrong" }, text);
  });
}

function make(number) {
  const row = rows[number];
  const shown = element("article", { class: "row", tabindex: "-1", "data-row": row.row });
  const button = (mark, text) => element("button", { type: "button", "data-mark": mark }, text);
  const masks = typeof row.mask === "string" ? "mask cannot be read" : null;
  const head = element("header", null, element("b", null, `row ${row.row}`),
    element("small", null, row.image_id ? `image ${row.image_id}` : ""), ...verdicts(row),
    masks ? element("small", { class: "wrong", title: row.mask }, masks) : null,
    element("span", { class: "buttons" }, button(KEEP, "Keep"), button(DROP, "Drop")));
  const images = [pictureFigure(pictures, about.side, "image", row.image, row.mask)];
  if (about.columns.includes("negative_image")) images.push(pictureFigure(pictures, about.side, "negative image", row.negative_image, row.mask));
  shown.append(head, element("div", { class: "pair" }, element("div", { class: "pictures" }, ...images),
    element("div", { class: "texts" }, texts(row), facts(row))));
  shown.addEventListener("click", (event) => {
    const pressed = event.target.closest("[data-mark]");
    choose(number, false);
    if (pressed) mark(number, marks.of(row.row) === pressed.dataset.mark ? "" : pressed.dataset.mark);
  });
  showMark(shown, row);
  return shown;
}

// ---- marks ----

const marks = new Marks(`hfcomp-gallery ${about.fingerprint}`, () => { showMarks(); count(); });

function showMark(shown, row) {
  for (const one of [KEEP, DROP]) {
    const isSet = marks.of(row.row) === one;
    shown.classList.toggle(one, isSet);
    shown.querySelector(`[data-mark=${one}]`).setAttribute("aria-pressed", isSet);
  }
}

function showMarks() {
  for (const [number, shown] of list.made) showMark(shown, rows[number]);
}

function mark(number, value) {
  const row = rows[number];
  marks.set([[row.row, value ? { mark: value, id: row.id } : null]]);
  showMark(list.element(number), row);
  isSaved = false;
  count();
}

function exported() {
  const found = Object.entries(marks.values).map(([row, one]) => ({ row: Number(row), id: one.id, mark: one.mark }));
  return found.sort((one, other) => one.row - other.row);
}

let isSaved = true;
byId("json").addEventListener("click", () => {
  saveFile("marks.json", "application/json", JSON.stringify({ ...about.set, marks: exported() }, null, 1));
  isSaved = true;
});
byId("csv").addEventListener("click", () => {
  const lines = exported().map((one) => `${one.row},${one.id},${one.mark}`);
  saveFile("marks.csv", "text/csv", ["row,id,mark", ...lines, ""].join("\r\n"));
});
byId("open").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (file) say(take(await file.text(), file.name));
  event.target.value = "";
});
addEventListener("beforeunload", (event) => { if (!marks.isKept && !isSaved) event.preventDefault(); });

// Adds the marks of a file, and returns a message about the result.
function take(text, name) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    return `${name} is not JSON. Expected a marks.json saved by a gallery page.`;
  }
  if (!found || found.fingerprint !== about.fingerprint || !Array.isArray(found.marks)) {
    return `${name} contains no marks of this dataset: its fingerprint differs.`;
  }
  const valid = found.marks.filter((one) => Number.isInteger(one.row) && (one.mark === KEEP || one.mark === DROP));
  marks.set(valid.map((one) => [one.row, { mark: one.mark, id: String(one.id) }]));
  showMarks();
  show();
  return `${valid.length.toLocaleString("en")} marks from ${name} were added.`;
}

function say(text) {
  byId("message").textContent = text;
  byId("message").hidden = text === "";
}

// ---- filters and order of rows ----

const list = new ItemList(byId("rows"), make);
let current = null;

const haystacks = rows.map((row) => [
  `row ${row.row}`, row.image_id || "", row.caption || "", ...row.positives,
  ...row.negatives.flatMap((one) => [one.text, one.facts]), ...row.facts.map(([, value]) => value),
].join("\n").toLowerCase());

function isShown(row, number) {
  const words = byId("search").value.trim().toLowerCase();
  if (words && !haystacks[number].includes(words)) return false;
  const kind = byId("kind").value;
  if (kind && !row.negatives.some((one) => one.kind === kind)) return false;
  for (const choice of byId("verdicts").children) {
    const wanted = choice.value;
    if (wanted && String(verdict(row, Number(choice.dataset.model))) !== wanted) return false;
  }
  const changed = byId("changed").value;
  if (changed && !hasChanged(row)) return false;
  if (changed === "won" && verdict(row, 1) !== 1) return false;
  if (changed === "lost" && verdict(row, 0) !== 1) return false;
  const marked = byId("marked").value;
  return !marked || (marked === "none" ? "" : marked) === marks.of(row.row);
}

function sortKey() {
  const [of, model] = byId("sort").value.split(" ");
  if (of === "margin") return (row) => margin(row, Number(model));
  return (row) => (margin(row, 0) === null || margin(row, 1) === null ? null : margin(row, 1) - margin(row, 0));
}

function show() {
  const order = rows.map((_, number) => number).filter((number) => isShown(rows[number], number));
  const way = byId("sort").value;
  if (way) {
    const key = sortKey(), sign = way.endsWith("down") ? -1 : 1;
    const known = new Map(order.map((number) => [number, key(rows[number])]));
    const last = (number) => (known.get(number) === null ? 1 : 0);
    order.sort((one, other) => last(one) - last(other) || sign * (known.get(one) - known.get(other)) || one - other);
  }
  list.show(order);
  byId("none").hidden = order.length > 0;
  count();
}

function count() {
  const number = (value) => value.toLocaleString("en");
  const parts = [`${number(list.order.length)} of ${number(rows.length)} rows`];
  parts.push(`${number(marks.count(KEEP))} kept, ${number(marks.count(DROP))} dropped`);
  byId("count").textContent = parts.join("; ");
  if (!marks.isKept) say("This browser does not store data for this page. Save the marks before you close it.");
}

// Recreates the rows, because their scores and verdicts look different now.
function redraw() {
  list.made.clear();
  show();
  if (current !== null) choose(current, false);
}

function choose(number, scroll) {
  if (current !== null && list.made.has(current)) list.made.get(current).classList.remove("current");
  const shown = list.reveal(number);
  current = shown ? number : null;
  if (!shown) return;
  shown.classList.add("current");
  if (scroll) {
    shown.scrollIntoView({ block: "center" });
    shown.focus({ preventScroll: true });
  }
}

function step(by) {
  const place = list.order.indexOf(current);
  const next = place < 0 ? 0 : place + by;
  if (next >= 0 && next < list.order.length) choose(list.order[next], true);
}

function markCurrent(value) {
  if (current === null) return step(0);
  mark(current, value);
  if (value) step(1);
}

// ---- controls ----

const has = (place) => rows.some((row) => row.scores && row.scores.some((own) => own && own[place] !== null));
const kinds = [...new Set(rows.flatMap((row) => row.negatives.map((one) => one.kind)).filter(Boolean))].sort();
fillChoices("kind", kinds.length ? [["", "all kinds"], ...kinds.map((one) => [one, one])] : []);
fillChoices("marked", [["", "marked or not"], ["none", "not marked"], [KEEP, "kept"], [DROP, "dropped"]]);
if (models.length) {
  models.forEach((one, model) => {
    const choice = element("select", { "aria-label": `Verdict of ${one.name}`, "data-model": model });
    for (const [value, text] of [["", "right or wrong"], ["1", "right"], ["0", "wrong"], ["-1", "tie"]]) {
      choice.append(element("option", { value }, `${one.name}: ${text}`));
    }
    byId("verdicts").append(choice);
  });
  const ways = models.flatMap((one, model) => [
    [`margin ${model} up`, `${one.name}: smallest margin first`], [`margin ${model} down`, `${one.name}: largest margin first`],
  ]);
  if (models.length > 1) {
    const [first, second] = models.map((one) => one.name);
    ways.push(["change 0 up", "largest loss of margin first"], ["change 0 down", "largest gain of margin first"]);
    fillChoices("changed", [["", "changed or not"], ["any", "changed between the models"],
      ["won", `${first} not right, ${second} right`], ["lost", `${first} right, ${second} not`]]);
  }
  fillChoices("sort", [["", "dataset order"], ...ways]);
  fillChoices("unit", [["cosine", "cosines"], ["logit", "logits"]]);
  const ways2 = [["captions", "judged by captions"], ["images", "judged by images"], ["both", "judged by both"]];
  fillChoices("judge", has(BY_CAPTIONS) && has(BY_IMAGES) ? ways2 : has(BY_IMAGES) ? [ways2[1]] : [ways2[0]]);
}
byId("masks").hidden = !rows.some((row) => typeof row.mask === "number");

onSearch("search", show);
for (const id of ["kind", "changed", "marked", "sort", "verdicts"]) byId(id).addEventListener("change", show);
for (const id of ["judge", "unit"]) byId(id).addEventListener("change", redraw);
const masks = byId("masks").querySelector("input");
masks.addEventListener("change", () => document.body.classList.toggle("without-masks", !masks.checked));
onKeys({
  j: () => step(1), k: () => step(-1),
  a: () => markCurrent(KEEP), d: () => markCurrent(DROP), u: () => markCurrent(""),
  m: () => masks.click(), "/": () => byId("search").focus(),
});
show();
