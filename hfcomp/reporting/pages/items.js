// Needs list.js. An item has, by metric number in its benchmark, the value of each model (null if not scored) and, if
// any model tied, whether each one did; each text has the scores of each model with each picture.
const about = readData("about");
const pictures = readData("pictures");
const items = readData("item-data");
const { models, benchmarks } = about;
const CHANGES = { right: "both right", fixed: "fixed", broken: "broken", wrong: "both wrong" };

// ---- outcome of an item ----

const chosen = { benchmark: null, subset: "", metric: null, left: about.left, right: about.right };

function metricOf(item) {
  return chosen.metric === null || chosen.benchmark === null ? 0 : chosen.metric;
}

function valueOf(item, model) {
  const values = item.values[metricOf(item)];
  return values ? values[model] : null;
}

function isTie(item, model) {
  const ties = item.ties[metricOf(item)];
  return Boolean(ties && ties[model]);
}

const isGraded = (item) => benchmarks[item.benchmark].graded[metricOf(item)];
const isRight = (item, model) => valueOf(item, model) === 1 || (about.tie === "win" && isTie(item, model));

function verdict(item, model) {
  const value = valueOf(item, model);
  if (value === null) return "not scored";
  if (isGraded(item)) return String(Number(value.toFixed(3)));
  return isTie(item, model) ? "tie" : value === 1 ? "right" : "wrong";
}

// The change of an item from the left model to the right one; for a graded metric, whether its value rose or fell.
function changeOf(item) {
  const [before, after] = [valueOf(item, chosen.left), valueOf(item, chosen.right)];
  if (before === null || after === null) return "";
  if (isGraded(item)) return after > before ? "fixed" : after < before ? "broken" : "";
  const [left, right] = [isRight(item, chosen.left), isRight(item, chosen.right)];
  return left ? (right ? "right" : "broken") : right ? "fixed" : "wrong";
}

// ---- one item ----

const shownModels = () => (chosen.left === chosen.right ? [chosen.left] : [chosen.left, chosen.right]);

const RIVAL = "scores at least as high as a caption with its own image";

function scoreOf(text, model, picture) {
  return text?.scores?.[model]?.[picture] ?? null;
}

// A cell for each model and picture. A false caption with the image, and the caption with another image, are marked if
// they score at least as high as the caption with the image, or as the first false caption with the other image.
function scoreCells(item, text) {
  const own = item.texts.find((line) => line.role === "caption");
  const others = item.pictures.length > 1 ? item.texts.find((line) => line.role === "not") : null;
  return shownModels().flatMap((model) => item.pictures.map((_, picture) => {
    const score = scoreOf(text, model, picture);
    const isRival = text === own ? picture > 0 : text.role === "not" && picture === 0;
    const references = [scoreOf(own, model, 0), scoreOf(others, model, 1)].filter((value) => value !== null);
    const isWrong = isRival && score !== null && references.some((value) => score >= value);
    const attributes = isWrong ? { class: "number wrong", title: RIVAL } : { class: "number" };
    return element("td", attributes, score === null ? "" : score.toFixed(3));
  }));
}

function texts(item) {
  const lines = item.texts.map((text) =>
    textLine(text.role, text.changes ? changedText(text.changes) : [text.text], scoreCells(item, text)));
  if (item.hidden) lines.push(textLine("", [element("small", null, `and ${item.hidden} more`)], []));
  const isScored = item.texts.some((text) => text.scores);
  const head = !isScored ? [] : shownModels().flatMap((model) => item.pictures.map(([title]) =>
    element("th", { class: "number" }, models[model], item.pictures.length > 1 ? element("small", null, title) : null)));
  return element("table", null, element("thead", null, element("tr", null, element("th"), element("th"), ...head)),
    element("tbody", null, ...lines));
}

function make(number) {
  const item = items[number];
  const { title, metrics } = benchmarks[item.benchmark];
  const verdicts = shownModels().map((model) => {
    const outcome = verdict(item, model);
    const kind = isGraded(item) || outcome === "not scored" ? "" : isRight(item, model) ? " right" : " wrong";
    return element("span", { class: `verdict${kind}` }, models.length > 1 ? `${models[model]}: ${outcome}` : outcome);
  });
  const change = changeOf(item);
  const word = change === "fixed" || change === "broken" ? element("span", { class: `verdict ${change}` }, change) : null;
  const name = [title, item.subset === "all" ? "" : item.subset, item.item].filter(Boolean).join(", ");
  const head = element("header", null, element("b", null, name),
    element("small", null, `image ${item.image}`), element("small", null, metrics[metricOf(item)]), ...verdicts, isGraded(item) ? null : word);
  const figures = item.pictures.map(([caption, picture]) => pictureFigure(pictures, about.side, caption, picture));
  return element("article", { class: "row", "data-item": number }, head, element("div", { class: "pair" },
    about.thumbnails ? element("div", { class: "pictures" }, ...figures) : null,
    element("div", { class: item.pictures.length > 1 ? "texts many" : "texts" }, texts(item))));
}

// ---- filters ----

const list = new ItemList(byId("rows"), make);
const haystacks = items.map((item) =>
  [item.item, item.image, ...item.texts.map((text) => text.text)].join("\n").toLowerCase());

function isListed(item, number, words) {
  if (chosen.benchmark !== null && item.benchmark !== chosen.benchmark) return false;
  if (chosen.subset && item.subset !== chosen.subset) return false;
  if (!item.values[metricOf(item)]) return false;
  const wanted = byId("verdict").value;
  if (wanted && verdict(item, chosen.left) !== wanted) return false;
  return !words || haystacks[number].includes(words);
}

function isWanted(change, wanted) {
  return !wanted || change === wanted || (wanted === "changed" && (change === "fixed" || change === "broken"));
}

function show() {
  const words = byId("search").value.trim().toLowerCase();
  const wanted = byId("change").value;
  const counts = { right: 0, fixed: 0, broken: 0, wrong: 0 };
  const order = [];
  items.forEach((item, number) => {
    if (!isListed(item, number, words)) return;
    const change = changeOf(item);
    if (change) counts[change] += 1;
    if (isWanted(change, wanted)) order.push(number);
  });
  list.made.clear(); // verdicts and columns depend on the choices
  list.show(order);
  byId("none").hidden = order.length > 0;
  const parts = Object.entries(CHANGES).map(([key, name]) => `${counts[key].toLocaleString("en")} ${name}`);
  const number = `${order.length.toLocaleString("en")} of ${items.length.toLocaleString("en")} items`;
  byId("count").textContent = models.length > 1 ? `${number}; ${parts.join(", ")}` : number;
}

// ---- controls ----

const numbered = (names) => names.map((name, number) => [number, name]);
const numberIn = (id) => (byId(id).value === "" ? null : Number(byId(id).value));

// Offers the subsets and metrics of the chosen benchmark. With all benchmarks, each one shows its first metric.
function updateChoices() {
  const benchmark = chosen.benchmark === null ? null : benchmarks[chosen.benchmark];
  const subsets = benchmark ? benchmark.subsets : [];
  fillChoices("subset", [["", "all subsets"], ...(subsets.length > 1 ? subsets.map((name) => [name, name]) : [])]);
  fillChoices("metric", benchmark ? numbered(benchmark.metrics) : []);
  Object.assign(chosen, { subset: "", metric: benchmark ? 0 : null });
}

function start() {
  const all = benchmarks.length > 1 ? [["", "all benchmarks"]] : [];
  fillChoices("benchmark", [...all, ...numbered(benchmarks.map((benchmark) => benchmark.title))]);
  fillChoices("left", numbered(models));
  fillChoices("right", numbered(models));
  byId("models").hidden = models.length < 2;
  [byId("left").value, byId("right").value] = [chosen.left, chosen.right];
  const changes = [["", "changed or unchanged"], ["changed", "changed"], ...Object.entries(CHANGES)];
  fillChoices("change", models.length > 1 ? changes : []);
  const verdicts = ["right", "wrong", "tie"].map((name) => [name, name]);
  fillChoices("verdict", models.length > 1 ? [] : [["", "right or wrong"], ...verdicts]);
  chosen.benchmark = numberIn("benchmark");
  updateChoices();
  byId("benchmark").addEventListener("change", () => { chosen.benchmark = numberIn("benchmark"); updateChoices(); show(); });
  byId("subset").addEventListener("change", () => { chosen.subset = byId("subset").value; show(); });
  for (const id of ["metric", "left", "right"]) {
    byId(id).addEventListener("change", () => { chosen[id] = numberIn(id); show(); });
  }
  for (const id of ["change", "verdict"]) byId(id).addEventListener("change", show);
  onSearch("search", show);
  onKeys({ "/": () => byId("search").focus() });
  show();
}

start();
