// A call of a tool, with its arguments while they are written.

import { el } from "./dom.js";

/** `{element, update}`; `update(live)` shows the call as it is now. */
export function callCard(call) {
  const state = el("span", { class: "hint" });
  const written = el("code");
  const element = el("section", { class: "call", "aria-label": `Call of ${call.name}` },
    el("div", { class: "code-head" }, el("span", {}, el("b", {}, call.name)), state),
    el("pre", { tabIndex: 0 }, written));
  const update = (live) => {
    const value = whole(call.arguments);
    element.classList.toggle("live", live);
    state.textContent = live ? "being written" : value === null ? "cut off" : "";
    const text = value === null || live ? call.arguments : JSON.stringify(value, null, 2);
    if (written.textContent !== text) written.textContent = text;
  };
  return { element, update };
}

function whole(text) {
  try {
    return JSON.parse(text || "{}");
  } catch {
    return null;
  }
}
