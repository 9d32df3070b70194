/* The theme opens and closes its navigation and menus by clicks on elements that no key reaches.
   Each of them becomes a button: Tab comes to it, Enter and Space press it, and it has a name. */
"use strict";

(() => {
  // What the theme's icons and menus are for, by the variable that a click on them changes.
  const NAMES = {
    sidebarMobileOpen: "Navigation",
    sidebarDesktopOpen: "Navigation",
    openUserLinks: "Your account",
    openTheme: "Light or dark",
    switchTheme: "",
  };
  const NATURAL = "a[href], button, input, select, textarea, summary, [tabindex]";

  const press = (event) => {
    if (event.target !== event.currentTarget) return;
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.currentTarget.click();
  };

  const reach = (element) => {
    if (element.matches(NATURAL)) return;
    element.dataset.reached = "";
    element.tabIndex = 0;
    element.setAttribute("role", "button");
    const does = element.getAttribute("x-on:click");
    const name = Object.entries(NAMES).find(([variable]) => does.includes(variable));
    if (name && name[1]) element.setAttribute("aria-label", name[1]);
    element.addEventListener("keydown", press);
  };

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[x-on\\:click]").forEach(reach);
  });
})();
