/* The theme opens and closes its navigation and menus by clicks on elements that no key reaches,
   and marks where one is by colour alone. Here each of them becomes a button: Tab comes to it,
   Enter and Space press it, and it has a name; and the page that one is on is said to be it. */
"use strict";

(() => {
  // What a click is for, by the variable that it changes; the others say it themselves.
  const NAMES = {
    sidebarMobileOpen: "Navigation",
    sidebarDesktopOpen: "Navigation",
    openUserLinks: "Your account",
  };
  const NATURAL = "a[href], button, input, select, textarea, summary";

  const press = (event) => {
    if (event.target !== event.currentTarget) return;
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.currentTarget.click();
  };

  const reach = (element) => {
    if (element.matches(NATURAL)) return;
    const changes = element.getAttribute("x-on:click");
    const variable = Object.keys(NAMES).find((one) => changes.includes(one));
    if (variable) element.setAttribute("aria-label", NAMES[variable]);
    element.setAttribute("role", "button");
    element.dataset.reached = "";
    element.tabIndex = 0;
    element.addEventListener("keydown", press);
  };

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[x-on\\:click]").forEach(reach);
    document.querySelectorAll("#nav-sidebar a.active").forEach((link) => {
      link.setAttribute("aria-current", "page");
    });
  });
})();
