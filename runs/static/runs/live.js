/* Keeps the part of a page that is marked `data-live="SECONDS"` as the server has it now: asks for
   the page again and puts its part in the place of ours. The page is complete without it.

   It rests while nobody looks, while text in the part is marked, and for longer after each failure.
   What was opened stays open, by the id of its <details>; what has the keyboard's focus keeps it,
   by its id or address. Other scripts hear of the change by the event `live:changed`.
   `data-live-said` is an element that says how old the part is where that is not as usual. */
"use strict";

(() => {
  const MOST_SECONDS = 60;
  let part = document.querySelector("[data-live]");
  if (!part) return;
  const usual = Number(part.dataset.live) || 5;
  const said = document.querySelector("[data-live-said]");
  let wait = usual;
  let timer = 0;
  let last = new Date();

  // As every other time on the pages.
  const clock = (at) => `${at.toISOString().slice(11, 19)} UTC`;
  const say = (text) => {
    if (said && said.textContent !== text) said.textContent = text;
  };

  const isMarked = () => {
    const marked = document.getSelection();
    return Boolean(marked) && !marked.isCollapsed && part.contains(marked.anchorNode);
  };

  /* What stands in the fresh part for something in ours: of several with one address, the one in
     the same place among them. */
  const counterpart = (one, fresh) => {
    if (one.id) return fresh.querySelector(`#${CSS.escape(one.id)}`);
    const address = one.getAttribute("href");
    if (!address) return null;
    const alike = `[href="${CSS.escape(address)}"]`;
    const place = [...part.querySelectorAll(alike)].indexOf(one);
    const found = fresh.querySelectorAll(alike);
    return found[Math.min(place, found.length - 1)] ?? null;
  };

  const swap = (fresh) => {
    const open = new Map();
    for (const one of part.querySelectorAll("details[id]")) open.set(one.id, one.open);
    for (const one of fresh.querySelectorAll("details[id]")) {
      if (open.has(one.id)) one.open = open.get(one.id);
    }
    const chosen = part.contains(document.activeElement) ? document.activeElement : null;
    const again = chosen && (counterpart(chosen, fresh) ?? fresh);
    part.replaceWith(document.adoptNode(fresh));
    part = fresh;
    if (again === part) part.tabIndex = -1;
    again?.focus({ preventScroll: true });
    part.dispatchEvent(new CustomEvent("live:changed", { bubbles: true }));
  };

  const refresh = async () => {
    const answer = await fetch(location.href, {
      credentials: "same-origin", cache: "no-store", redirect: "manual",
      signal: AbortSignal.timeout(10000),
    });
    if (answer.type === "opaqueredirect" || answer.status === 403) return "signed out";
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("[data-live]");
    if (!fresh) return "signed out";
    if (!isMarked()) swap(fresh);
    return "";
  };

  const tick = async () => {
    if (document.hidden) return;
    if (isMarked()) {
      say(`As of ${clock(last)}: not renewed while text is marked.`);
      plan();
      return;
    }
    try {
      if (await refresh()) {
        say("You are signed out: this page does not change any more.");
        return;
      }
      last = new Date();
      wait = usual;
      say("");
    } catch {
      wait = Math.min(2 * wait, MOST_SECONDS);
      say(`No answer since ${clock(last)}: what you see is as old as that.`);
    }
    plan();
  };

  const plan = () => {
    clearTimeout(timer);
    timer = setTimeout(tick, wait * 1000);
  };

  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (!document.hidden) tick();
  });
  plan();
})();
