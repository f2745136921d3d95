"use strict";
// Shared code of item pages: reading data, a list that is drawn on scrolling, persistent marks, and saving files.
// Texts from data become text nodes or attribute values, never HTML.

function readData(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

const byId = (id) => document.getElementById(id);

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  const shown = children.filter((child) => child !== null && child !== undefined && child !== "");
  made.append(...shown.map((child) => (tag === "option" ? child : isolate(child))));
  return made;
}

// Keeps a text with another direction from reordering the words around it; see text_html.
function isolate(child) {
  if (typeof child !== "string" || !/[^\x00-\x7f]/.test(child)) return child;
  const made = document.createElement("bdi");
  made.append(child);
  return made;
}

// A list of items by number. Elements are created once, and only for items near the visible part.
class ItemList {
  constructor(place, make, batch = 20) {
    Object.assign(this, { place, make, batch, order: [], drawn: 0, made: new Map() });
    this.end = element("div", { class: "end" });
    place.after(this.end);
    this.observer = new IntersectionObserver(
      (entries) => { if (entries.some((entry) => entry.isIntersecting)) this.draw(this.drawn + this.batch); },
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
    this.observer.disconnect(); // it reports only changes, but an end that is still in sight must be reported again
    if (this.drawn < this.order.length) this.observer.observe(this.end);
  }

  element(item) {
    if (!this.made.has(item)) this.made.set(item, this.make(item));
    return this.made.get(item);
  }

  // The element of an item in the current order, drawn together with all items before it.
  reveal(item) {
    const place = this.order.indexOf(item);
    if (place < 0) return null;
    if (place >= this.drawn) this.draw(place + this.batch);
    return this.element(item);
  }
}

// Marks of rows. If the browser allows local storage, it keeps them for all pages with the same key.
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

  // Each change is a row and its mark with identifying data, or null to remove the mark.
  set(changes) {
    if (this.isKept) this.values = this.read(); // includes the marks of another window
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
    return Object.values(this.values).filter((value) => value.mark === mark).length;
  }
}

function saveFile(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// Runs an action by key, unless the user is typing or choosing something.
function onKeys(actions) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (action) { event.preventDefault(); action(); }
  });
}

// Reacts to input in a search field shortly after the last key; Escape clears the field.
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

// Fills a select with choices, given as pairs of value and text; hides it if there is nothing to choose.
function fillChoices(id, choices) {
  byId(id).replaceChildren(...choices.map(([value, text]) => element("option", { value }, text)));
  byId(id).hidden = choices.length < 2;
}

// A picture by its number, or the reason why it is missing. Small ones are enlarged by an integer factor up to `side`
// pixels.
function pictureFigure(pictures, side, title, picture, mask) {
  const name = element("figcaption", null, title);
  if (picture === null) return element("figure", null, element("span", { class: "absent" }, "none"), name);
  if (typeof picture === "string") {
    return element("figure", null, element("span", { class: "absent", title: picture }, "cannot be read"), name);
  }
  const [uri, width, height] = pictures[picture];
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

// A text with its added words marked and the removed words struck through; see word_changes.
function changedText(changes) {
  const tags = { removed: "del", added: "ins" };
  return changes.flatMap(([kind, text], place) => {
    const part = tags[kind] ? element(tags[kind], null, text) : text;
    return place ? [" ", part] : [part];
  });
}

// A line of an item's texts: role, text, and further cells.
function textLine(role, content, cells, kind) {
  return element("tr", { class: kind }, element("th", null, role), element("td", null, ...content), ...cells);
}
