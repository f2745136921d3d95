"use strict";
// What pages of items share: their data, a list that is drawn as one scrolls, marks that stay, files to save.
// Texts of data become text nodes or values of attributes, never HTML.

function readData(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

const byId = (id) => document.getElementById(id);

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  const shown = children.filter((one) => one !== null && one !== undefined && one !== "");
  made.append(...shown.map((one) => (tag === "option" ? one : isolated(one))));
  return made;
}

// A text of another direction turns no word around it; see text_html.
function isolated(one) {
  if (typeof one !== "string" || !/[^\x00-\x7f]/.test(one)) return one;
  const made = document.createElement("bdi");
  made.append(one);
  return made;
}

// A list of items by number, of which only those near the window are made; each is made once.
class ItemList {
  constructor(place, make, batch = 20) {
    Object.assign(this, { place, make, batch, order: [], drawn: 0, made: new Map() });
    this.end = element("div", { class: "end" });
    place.after(this.end);
    this.observer = new IntersectionObserver(
      (entries) => { if (entries.some((one) => one.isIntersecting)) this.draw(this.drawn + this.batch); },
      { rootMargin: "1500px 0px" },
    );
  }

  show(order) {
    this.order = order;
    this.drawn = 0;
    this.place.replaceChildren();
    this.draw(this.batch);
  }

  draw(number) {
    const part = this.order.slice(this.drawn, number);
    this.place.append(...part.map((item) => this.element(item)));
    this.drawn += part.length;
    this.observer.disconnect(); // it reports changes alone: an end that is still in sight has to be reported again
    if (this.drawn < this.order.length) this.observer.observe(this.end);
  }

  element(item) {
    if (!this.made.has(item)) this.made.set(item, this.make(item));
    return this.made.get(item);
  }

  // The element of an item of the present order, drawn with all before it.
  reveal(item) {
    const place = this.order.indexOf(item);
    if (place < 0) return null;
    if (place >= this.drawn) this.draw(place + this.batch);
    return this.element(item);
  }
}

// A mark for each of some rows. The browser keeps them for all pages of one key, where it lets a page keep anything.
class Marks {
  constructor(key, whenChanged) {
    Object.assign(this, { key, values: {}, isKept: true });
    this.values = this.read();
    addEventListener("storage", (event) => {
      if (event.key === this.key) { this.values = this.read(); whenChanged(); }
    });
  }

  read() {
    try {
      return JSON.parse(localStorage.getItem(this.key) || "{}");
    } catch {
      this.isKept = false;
      return this.values;
    }
  }

  of(row) {
    return this.values[row] ? this.values[row].mark : "";
  }

  // Each of the changes is a row and its mark with whatever identifies it, or null for none.
  set(changes) {
    if (this.isKept) this.values = this.read(); // with those of another window
    for (const [row, value] of changes) {
      if (value === null) delete this.values[row];
      else this.values[row] = value;
    }
    try {
      localStorage.setItem(this.key, JSON.stringify(this.values));
    } catch {
      this.isKept = false;
    }
  }

  count(mark) {
    return Object.values(this.values).filter((one) => one.mark === mark).length;
  }
}

function saveFile(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// Keys by what they do, while nothing is typed or chosen.
function onKeys(actions) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (action) { event.preventDefault(); action(); }
  });
}

// What is typed into a search field, a moment after the last key; Escape empties it.
function onSearch(id, whenChanged) {
  let waiting;
  byId(id).addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(whenChanged, 120); });
  byId(id).addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    byId(id).value = "";
    byId(id).blur();
    whenChanged();
  });
}

// The choices of a select, as pairs of value and text; one without a choice is hidden.
function fillChoices(id, choices) {
  byId(id).replaceChildren(...choices.map(([value, text]) => element("option", { value }, text)));
  byId(id).hidden = choices.length < 2;
}

// A picture by its number, or why there is none; small ones are enlarged by a whole factor up to `side` pixels.
function pictureFigure(pictures, side, title, found, mask) {
  const name = element("figcaption", null, title);
  if (found === null) return element("figure", null, element("span", { class: "absent" }, "none"), name);
  if (typeof found === "string") {
    return element("figure", null, element("span", { class: "absent", title: found }, "cannot be read"), name);
  }
  const [uri, width, height] = pictures[found];
  const factor = Math.max(1, Math.floor(side / Math.max(width, height)));
  const frame = element("span", { class: factor > 1 ? "frame enlarged" : "frame" });
  frame.append(element("img", {
    src: uri, width: width * factor, height: height * factor, alt: title, decoding: "async",
  }));
  if (typeof mask === "number") {
    frame.append(element("img", { class: "mask", src: pictures[mask][0], alt: "mask", decoding: "async" }));
  }
  return element("figure", null, frame, name);
}

// A text with the words that it has and another one has not, and those that are gone; see word_changes.
function changedText(changes) {
  const tags = { removed: "del", added: "ins" };
  return changes.flatMap(([kind, text], place) => {
    const part = tags[kind] ? element(tags[kind], null, text) : text;
    return place ? [" ", part] : [part];
  });
}

// A line of an item's texts: what the text is, itself, and cells behind it.
function textLine(role, content, cells, kind) {
  return element("tr", { class: kind }, element("th", null, role), element("td", null, ...content), ...cells);
}
