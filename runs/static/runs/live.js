/* Keeps the part of a page that is marked `data-live="SECONDS"` as the server has it now: asks for
   the page again and puts its part in the place of ours. The page is complete without it.

   It rests while nobody looks, while something in the part is chosen or marked, and for longer
   after each failure. What was opened stays open, by the id of its <details>. Other scripts hear
   of the change by the event `live:changed`. `data-live-said` is an element that says how old the
   part is where that is not as usual. */
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

  const say = (text) => {
    if (said && said.textContent !== text) said.textContent = text;
  };

  const isInUse = () => {
    const marked = document.getSelection();
    if (marked && !marked.isCollapsed && part.contains(marked.anchorNode)) return true;
    const chosen = document.activeElement;
    return chosen !== null && chosen !== document.body && part.contains(chosen)
      && chosen.matches(":focus-visible");
  };

  const swap = (fresh) => {
    const open = new Map();
    for (const one of part.querySelectorAll("details[id]")) open.set(one.id, one.open);
    for (const one of fresh.querySelectorAll("details[id]")) {
      if (open.has(one.id)) one.open = open.get(one.id);
    }
    part.replaceWith(document.adoptNode(fresh));
    part = fresh;
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
    if (!isInUse()) swap(fresh);
    return "";
  };

  const tick = async () => {
    if (document.hidden) return;
    if (isInUse()) {
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
      say(`No answer since ${last.toLocaleTimeString()}: what you see is as old as that.`);
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
