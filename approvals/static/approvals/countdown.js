/* Counts down to times that the server wrote, by the server's clock. The page is complete
   without it: every such time also stands there as a date. */
"use strict";

(() => {
  const times = [...document.querySelectorAll("time[data-until]")];
  if (times.length === 0) return;
  const page = document.querySelector("[data-now]");
  const served = page ? Date.parse(page.dataset.now) : Date.now();
  const started = performance.now();
  const two = (number) => String(number).padStart(2, "0");

  const say = (left) => {
    if (left <= 0) return "over";
    const days = Math.floor(left / 86400);
    const hours = Math.floor(left / 3600) % 24;
    const minutes = Math.floor(left / 60) % 60;
    if (days > 0) return `in ${days} d ${hours} h`;
    if (hours > 0) return `in ${hours} h ${two(minutes)} min`;
    return `in ${minutes} min ${two(left % 60)} s`;
  };

  const show = () => {
    const now = served + performance.now() - started;
    for (const time of times) {
      const left = Math.floor((Date.parse(time.dateTime) - now) / 1000);
      time.firstElementChild.textContent = say(left);
      time.classList.toggle("ao-soon", left < 600);
    }
  };

  show();
  setInterval(show, 1000);
})();
