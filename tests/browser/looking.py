"""What a person would see at once, asked of the page itself: width, contrast, focus."""

import os
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, ViewportSize

PHONE = ViewportSize(width=390, height=844)
DESK = ViewportSize(width=1366, height=900)
# As WCAG 2 asks of text.
LEAST_CONTRAST = 4.5

# Everything inside the page's own part whose text is hard to read on what lies behind it.
_FAINT = """least => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const brush = canvas.getContext("2d", { willReadFrequently: true });
  const mix = (colours) => {
    brush.clearRect(0, 0, 1, 1);
    for (const colour of colours) { brush.fillStyle = colour; brush.fillRect(0, 0, 1, 1); }
    return [...brush.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const found = [];
    for (let at = element; at; at = at.parentElement)
      found.unshift(getComputedStyle(at).backgroundColor);
    return ["#fff", ...found];
  };
  const faint = [];
  for (const element of document.querySelectorAll(".ao-page *")) {
    const says = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    const written = says || element.matches("input:not([type=hidden]), textarea, select");
    if (!written || !element.checkVisibility()) continue;
    const colours = behind(element);
    const [one, two] = [mix(colours), mix([...colours, getComputedStyle(element).color])]
      .map(light).sort((a, b) => b - a);
    const contrast = (one + 0.05) / (two + 0.05);
    if (contrast < least)
      faint.push(`${element.tagName} ${element.className} ${contrast.toFixed(2)}: `
        + element.textContent.trim().slice(0, 40));
  }
  return faint;
}"""
_TOO_WIDE = """() => [...document.querySelectorAll(".ao-page *")]
  .filter((element) => element.getBoundingClientRect().right > innerWidth + 1
    && !element.closest(".ao-pre, .ao-written"))
  .map((element) => `${element.tagName} ${element.className}`)"""
_SEEN_FOCUS = """element => {
  const style = getComputedStyle(element);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
}"""


def hard_to_read(page: Page) -> Any:
    """The texts of a page that have too little contrast."""
    return page.evaluate(_FAINT, LEAST_CONTRAST)


def too_wide(page: Page) -> Any:
    """What sticks out of the window to the right, and whether it can be scrolled there."""
    found = page.evaluate(_TOO_WIDE)
    scrolls = page.evaluate("() => document.documentElement.scrollWidth > innerWidth")
    return [*found, *(["the page scrolls sideways"] if scrolls else [])]


def shows_focus(element: Locator) -> Any:
    return element.evaluate(_SEEN_FOCUS)


def follow(page: Page, leads_on: Locator) -> None:
    """Clicks what leads to another page, and stands on that one.

    A click returns before the browser leaves: whoever looks at once may see no document at all.
    """
    with page.expect_navigation():
        leads_on.click()


def look(page: Page, name: str) -> None:
    """A page is neither too wide nor too faint on a phone and a desk, by night and by day."""
    for device in ("phone", "desk"):
        for scheme in ("dark", "light"):
            assert faults_of(page, name, device, scheme) == []


def faults_of(page: Page, name: str, device: str, scheme: str) -> list[str]:
    """What is too wide or too faint on a page."""
    page.set_viewport_size(PHONE if device == "phone" else DESK)
    page.evaluate("on => document.documentElement.classList.toggle('dark', on)", scheme == "dark")
    shown = f"{device}-{scheme}-{name}"
    picture(page, shown)
    return [f"{shown}: {fault}" for fault in (*too_wide(page), *hard_to_read(page))]


def picture(page: Page, name: str) -> None:
    """A screenshot for people, where BROWSER_SCREENSHOTS names a folder."""
    if folder := os.environ.get("BROWSER_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
