"use strict";
const tree = document.getElementById("tree");
const search = document.getElementById("search");
const matches = document.getElementById("matches");
const nodes = [...tree.querySelectorAll("details")];
const pictures = JSON.parse(document.getElementById("pictures").textContent);

// Pictures are made when a concept is opened for the first time.
function fill(node) {
  const place = node.querySelector(":scope > .pictures");
  if (!place || place.firstChild) return;
  for (const address of pictures[place.dataset.name] || []) {
    const image = new Image();
    image.loading = "lazy";
    image.alt = place.dataset.name;
    image.src = address;
    place.append(image);
  }
}

tree.addEventListener("toggle", (event) => event.target.open && fill(event.target), true);

function find() {
  const words = search.value.trim().toLowerCase();
  let number = 0;
  const shown = new Set();
  for (const node of nodes) {
    const isFound = words !== "" && node.dataset.names.includes(words);
    node.classList.toggle("found", isFound);
    if (!isFound) continue;
    number += 1;
    for (let one = node; one && one !== tree; one = one.parentElement) shown.add(one);
    node.querySelectorAll("details").forEach((one) => shown.add(one));
  }
  for (const node of nodes) {
    node.hidden = words !== "" && !shown.has(node);
    if (words !== "") node.open = shown.has(node) && node.querySelector(".found") !== null;
  }
  matches.textContent = words === "" ? "" : `${number} found`;
}

let waiting;
search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(find, 120); });
search.addEventListener("keydown", (event) => { if (event.key === "Escape") { search.value = ""; find(); } });
document.getElementById("open").addEventListener("click", () => nodes.forEach((node) => { node.open = true; }));
document.getElementById("close").addEventListener("click", () => nodes.forEach((node) => { node.open = false; }));

// A link leads to a concept that may be hidden or in a closed branch.
function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let one = target; one && one !== tree; one = one.parentElement) { one.hidden = false; one.open = true; }
  target.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", reveal);
reveal();
