// The column at the side, which narrow windows show on demand.

import { find } from "./dom.js";

export function addSide() {
  const set = (open) => {
    document.body.classList.toggle("side", open);
    if (open) find("#side-close").focus();
  };
  find("#side-open").addEventListener("click", () => set(true));
  for (const selector of ["#side-close", "#scrim"]) find(selector).addEventListener("click", () => set(false));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !document.body.classList.contains("side")) return;
    event.stopImmediatePropagation(); // the answer goes on
    set(false);
  });
  return { close: () => set(false) };
}
