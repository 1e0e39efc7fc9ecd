// Where a person types what calls of tools gave.

import { button, el, fit } from "./dom.js";

/**
 * A form for the results of `calls`. `drafts` holds their texts by call id and is kept up to date (`changed` is told);
 * `send` gets the results, `cancel` is offered where it is given.
 */
export function resultForm(calls, drafts, { send, changed, cancel = null }) {
  const boxes = calls.map(({ id, name }) => {
    const area = el("textarea", { rows: 2, class: "code", spellcheck: false, value: drafts[id] ?? "" });
    area.addEventListener("input", () => {
      drafts[id] = area.value;
      fit(area);
      changed();
    });
    return { id, area, label: el("label", {}, `Result of ${name}`, area) };
  });
  const form = el("form", {
    class: "message results edit",
    "aria-label": "Results of tools",
    onsubmit: (event) => {
      event.preventDefault();
      send(boxes.map(({ id, area }) => ({ id, text: area.value })));
    },
    onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
      if (event.key === "Escape" && cancel) {
        event.stopPropagation();
        cancel();
      }
    },
  },
  boxes.map(({ label }) => label),
  el("div", { class: "row" }, el("span", { class: "hint" }, "Ctrl+Enter sends"),
    cancel && button("Cancel", cancel),
    el("button", { type: "submit", class: "primary" }, calls.length > 1 ? "Send results" : "Send result")));
  return form;
}
