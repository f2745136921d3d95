"use strict";
const tree = document.getElementById("tree");
const search = document.getElementById("search");
const matches = document.getElementById("matches");
const nodes = [...tree.querySelectorAll("details")];
const pictures = JSON.parse(document.getElementById("pictures").textContent);

// Creates the images of a concept when it is opened for the first time.
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
    for (let above = node; above && above !== tree; above = above.parentElement) shown.add(above);
    node.querySelectorAll("details").forEach((below) => shown.add(below));
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

// Shows the target of a link, which may be hidden or in a closed branch.
function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let above = target; above && above !== tree; above = above.parentElement) { above.hidden = false; above.open = true; }
  target.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", reveal);
reveal();
