() => {
  const tabOf = () => {
    const shown = (id) => document.querySelector(id)?.offsetParent;
    return shown("#submit") ? "annotate" : shown("#accept") ? "review" : "";
  };
  const click = (selector) => document.querySelector(selector)?.click();
  const focus = (selector) => document.querySelector(`${selector} textarea, ${selector} input`)?.focus();
  const option = (id, value) => click(`#${id} input[value="${value}"]`);
  const keys = {
    annotate: {
      p: () => click("#paint"),
      n: () => click("#paint"),
      1: () => option("chosen", "1"),
      2: () => option("chosen", "2"),
      3: () => option("chosen", "3"),
      v: () => option("quality", "very good"),
      o: () => option("quality", "okay"),
      m: () => focus("#mask-prompt"),
      i: () => focus("#prompt"),
      c: () => focus("#caption"),
      b: () => click("#brush-button"),
      s: () => focus("#reason"),
      u: () => click("#undo"),
    },
    review: {
      v: () => option("review-quality", "very good"),
      o: () => option("review-quality", "okay"),
      m: () => click("#outline input"),
      a: () => click("#accept"),
      r: () => focus("#review-reason"),
      u: () => click("#review-undo"),
    },
  };
  const types = (element) =>
    element.isContentEditable ||
    ["TEXTAREA", "SELECT"].includes(element.tagName) ||
    (element.tagName === "INPUT" && !["radio", "checkbox", "range", "button"].includes(element.type));

  document.addEventListener("keydown", (event) => {
    const tab = tabOf();
    if (!tab || event.repeat) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      event.stopPropagation();
      if (tab === "annotate") click("#submit");
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || types(event.target)) return;
    const action = keys[tab][event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
  }, true);

  document.addEventListener("click", (event) => {
    const caption = event.target.closest("ol.captions li");
    if (caption) option("base", caption.dataset.number);
    const candidate = event.target.closest(".candidate");
    if (candidate && !event.target.closest("button[aria-label]")) option("chosen", candidate.id.slice("candidate-".length));
  });
}
