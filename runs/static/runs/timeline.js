/* Keeps a timeline fresh. The page is complete without it: "Reload" is a plain link.

   Every few seconds the page is asked for again with the mark of what is shown; as long as nothing
   is new the answer is empty. After the run has ended it is asked for once a minute, since a late
   answer, an incident or what an audit found comes later. What is new is merged in, element by element: whatever did not change
   stays the same element, so that scroll, focus, selection and what was opened stay as they were. */
"use strict";

(() => {
  const EVERY = 3000;
  const SLOWEST = 60000;
  const page = document.getElementById("timeline");
  if (!page) return;

  let wait = EVERY;
  let timer = 0;
  let paused = false;

  const bar = document.createElement("p");
  bar.className = "ao-live";
  bar.dataset.kept = "";
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  const button = document.createElement("button");
  button.type = "button";
  bar.append(said, button);
  page.querySelector(".ao-head").after(bar);

  const clock = () => new Date().toISOString().slice(11, 19);
  const say = (text) => { if (said.textContent !== text) said.textContent = text; };
  const label = () => { button.textContent = paused ? "Resume live refresh" : "Pause live refresh"; };

  const stop = (text) => {
    clearTimeout(timer);
    paused = true;
    button.remove();
    say(text);
  };

  const rest = () => {
    const ends = page.dataset.live !== "yes";
    wait = ends ? SLOWEST : EVERY;
    say(ends ? "The run has ended; what is found later shows within a minute." : "Live");
  };

  const later = () => {
    clearTimeout(timer);
    if (!paused && !document.hidden) timer = setTimeout(look, wait);
  };

  const look = async () => {
    try {
      const address = new URL(page.dataset.url, location.href);
      address.searchParams.set("since", page.dataset.mark);
      const answer = await fetch(address, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (paused) return;
      if (answer.status === 200) {
        const text = await answer.text();
        const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("timeline");
        if (!fresh) return stop("You are signed out: reload the page.");
        if (!paused) take(fresh);
      } else if (answer.status === 403 || answer.status === 404) {
        return stop("This timeline cannot be read any more: reload the page.");
      } else if (answer.status !== 204) {
        throw new Error(String(answer.status));
      }
      rest();
    } catch {
      wait = Math.min(wait * 2, SLOWEST);
      say(`Not refreshed at ${clock()} UTC: no answer. It is tried again.`);
    }
    later();
  };

  /* The first thing in sight stays where it is, whatever grew above it. */
  const take = (fresh) => {
    const anchor = [...page.querySelectorAll("[id]")].find(
      (one) => one.getBoundingClientRect().top >= 0 && fresh.querySelector(`#${CSS.escape(one.id)}`),
    );
    const top = anchor ? anchor.getBoundingClientRect().top : 0;
    const focused = document.activeElement ? document.activeElement.id : "";
    page.dataset.mark = fresh.dataset.mark;
    page.dataset.live = fresh.dataset.live;
    for (const opened of page.querySelectorAll("details[open][id]")) {
      const same = fresh.querySelector(`#${CSS.escape(opened.id)}`);
      if (same) same.open = true;
    }
    merge(page, fresh);
    if (focused && document.activeElement.id !== focused) {
      const same = document.getElementById(focused);
      if (same && page.contains(same)) same.focus({ preventScroll: true });
    }
    if (anchor && anchor.isConnected && scroller(anchor).scrollTop > 0) {
      scroller(anchor).scrollTop += anchor.getBoundingClientRect().top - top;
    }
  };

  const scroller = (element) => {
    for (let at = element.parentElement; at; at = at.parentElement) {
      if (at.scrollHeight > at.clientHeight && /auto|scroll/.test(getComputedStyle(at).overflowY)) return at;
    }
    return document.scrollingElement;
  };

  /* Makes `old` say what `fresh` says, and keeps every child that says it already. */
  const merge = (old, fresh) => {
    const known = new Map([...old.children].filter((one) => one.id).map((one) => [one.id, one]));
    const kept = [...old.children].filter((one) => "kept" in one.dataset);
    const next = [...fresh.childNodes].map((node) => {
      const same = node.id ? known.get(node.id) : undefined;
      if (!same || same.tagName !== node.tagName) return node;
      if (same.isEqualNode(node)) return same;
      if (same.getAttribute("class") !== node.getAttribute("class")) same.className = node.className;
      if (![...node.children].some((one) => one.id)) return node;
      merge(same, node);
      return same;
    });
    for (const one of kept) next.splice(Math.min(2, next.length), 0, one);
    let at = old.firstChild;
    for (const node of next) {
      if (node === at) at = at.nextSibling;
      else old.insertBefore(node, at);
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  };

  button.addEventListener("click", () => {
    paused = !paused;
    label();
    if (!paused) {
      rest();
      return look();
    }
    clearTimeout(timer);
    say(`Paused at ${clock()} UTC`);
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else if (!paused) look();
  });
  label();
  rest();
  later();
})();
