"""The actions of a person in the page, in a browser of `tests.chromium`."""

from __future__ import annotations

import re

from playwright.sync_api import expect

TIMEOUT = 20_000
"""Milliseconds to wait for the page: machines are shared."""


expect.set_options(timeout=TIMEOUT)


class Visit:
    """A person at the page, in a browser context of their own.

    Args:
        browser: of `chromium`.
        address: of the page.
        width: of the window, in pixels.
    """

    def __init__(self, browser, address: str, width: int = 1280) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900})
        self.page = self.context.new_page()
        self.page.set_default_timeout(TIMEOUT)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(address)

    def sign_in(self, name: str) -> Visit:
        """Begins as a person, on a page without a password."""
        self.field("name").fill(name)
        self.page.click("#begin")
        self.field("caption").wait_for()
        return self

    def reload(self) -> None:
        """Loads the page again and waits for the item."""
        self.page.reload()
        self.field("caption").wait_for()

    def field(self, name: str):
        """The field of a component that text is typed in."""
        return self.page.locator(f"#{name} textarea, #{name} input").first

    def value(self, name: str) -> str:
        """The text of a field."""
        return self.field(name).input_value()

    def choose(self, name: str, value: str) -> None:
        """A choice of a group."""
        self.page.locator(f'#{name} input[value="{value}"]').click()

    def chosen(self, name: str) -> str | None:
        """The value chosen in a group."""
        choice = self.page.locator(f"#{name} input:checked")
        return choice.get_attribute("value") if choice.count() else None

    def item(self) -> str:
        """The item that is annotated."""
        return re.search(r"item (\S+)", self.page.locator("#title").inner_text())[1]

    def press(self, key: str) -> None:
        """A key, with no field in focus."""
        self.page.evaluate("document.activeElement?.blur()")
        self.page.keyboard.press(key)

    def paint(self) -> None:
        """Paints candidates and waits for all three."""
        before = [image.get_attribute("src") for image in self.page.locator(".candidate img").all()]
        self.press("p")
        self.page.wait_for_function(
            "before => { const found = [...document.querySelectorAll('.candidate img')];"
            " return found.length == 3 && found.every((one, i) => one.complete && one.src != before[i]) }",
            arg=before,
        )

    def says(self, text: str, where: str = "message") -> None:
        """Waits for a message."""
        expect(self.page.locator(f"#{where}")).to_contain_text(text)

    def is_at(self, item: str) -> None:
        """Waits until an item is shown."""
        expect(self.page.locator("#title")).to_contain_text(f"item {item}")

    def tab(self, name: str) -> None:
        """Opens a tab."""
        self.page.get_by_role("tab", name=name).click()

    def annotate(self, quality: str = "v") -> str:
        """A whole annotation with the keyboard; returns the item."""
        item = self.item()
        self.paint()
        self.press("2")
        self.press(quality)
        self.page.keyboard.press("Control+Enter")
        self.page.wait_for_function(f"!document.querySelector('#title').innerText.includes('item {item}')")
        return item

    def problems(self) -> list[str]:
        """Layout errors: controls that overlap, or that reach beyond the window."""
        return self.page.evaluate(LAYOUT)

    def leave(self) -> None:
        """Closes the browser's window."""
        self.context.close()


LAYOUT = """() => {
  const problems = [];
  const root = document.documentElement;
  if (root.scrollWidth > window.innerWidth) problems.push(`the page is ${root.scrollWidth} pixels wide`);
  const wanted = 'button, input:not([type=file]), textarea, img, label > span, .message, ol.captions li, '
    + '.status span, .difference, dd, td, th';
  const shown = [...document.querySelectorAll(wanted)].filter((one) => {
    const style = getComputedStyle(one), box = one.getBoundingClientRect();
    return box.width > 1 && box.height > 1 && style.visibility != 'hidden' && style.opacity != '0'
      && one.offsetParent !== null
      && !one.closest('.icon-button-wrapper, .image-frame button, [role=listbox], #editor');
  });
  const text = (one) => (one.innerText || one.value || '').slice(0, 30);
  const name = (one) => `${one.tagName}#${one.closest('[id]')?.id} ${text(one)}`;
  for (const one of shown) {
    const box = one.getBoundingClientRect();
    if (box.left < -1 || box.right > window.innerWidth + 1) problems.push(`${name(one)} is cut off`);
    if (['BUTTON', 'SPAN'].includes(one.tagName) && one.scrollWidth > one.clientWidth + 1 && one.clientWidth)
      problems.push(`the text of ${name(one)} is cut off`);
  }
  shown.forEach((one, index) => shown.slice(index + 1).forEach((other) => {
    if (one.contains(other) || other.contains(one)) return;
    if (one.closest('label') && one.closest('label') === other.closest('label')) return;
    if (one.closest('.image-frame, .image-container') || other.closest('.image-frame, .image-container')) return;
    const a = one.getBoundingClientRect(), b = other.getBoundingClientRect();
    const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (width > 2 && height > 2) problems.push(`${name(one)} overlaps ${name(other)}`);
  }));
  return problems;
}"""
