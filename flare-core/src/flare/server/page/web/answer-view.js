// An answer on the page: reasoning, text, calls, errors, figures. `update` follows a stream.

import { el } from "./dom.js";
import { callCard } from "./call-view.js";
import { figuresOf, tokens } from "./figures.js";
import { show } from "./markdown.js";

export class AnswerView {
  /** `buttons`: what can be done with it. */
  constructor(answer, buttons) {
    this.answer = answer;
    this.reasoningText = el("div", { class: "thought" });
    this.summary = el("summary");
    this.reasoning = el("details", { class: "reasoning", hidden: true }, this.summary, this.reasoningText);
    this.text = el("div", { class: "markdown" });
    this.calls = el("div", { class: "calls" });
    this.notes = el("div", { class: "notes" });
    this.figures = el("p", { class: "figures" });
    this.foot = el("footer", {}, this.figures, el("div", { class: "actions" }, buttons));
    this.element = el("article", { class: "message answer", "aria-label": "Answer" },
      this.reasoning, this.text, this.calls, this.notes, this.foot);
    this.cards = [];
    this.update();
  }

  update() {
    const { state, content, reasoning, calls, usage } = this.answer;
    const live = state === "waiting" || state === "streaming";
    this.element.classList.toggle("live", live);
    this.element.setAttribute("aria-busy", String(live));
    this.element.dataset.state = state;
    if (reasoning && reasoning !== this.reasoningText.textContent) this.reasoningText.textContent = reasoning;
    this.reasoning.hidden = !reasoning;
    this.reasoning.classList.toggle("live", live && !content && !calls.length);
    const thought = usage?.reasoning ? ` · ${tokens(usage.reasoning)}` : "";
    this.summary.textContent = `Reasoning${thought}`;
    // White space at the edges is part of the answer, and nothing to see.
    show(this.text, content.trim());
    calls.forEach((call, index) => {
      if (!this.cards[index]) this.calls.append((this.cards[index] = callCard(call)).element);
      this.cards[index].update(live && index === calls.length - 1);
    });
    this.notes.replaceChildren(...notes(this.answer));
    this.figures.replaceChildren(...figuresOf(this.answer));
  }
}

function notes({ state, finish, error, broken, content, reasoning, calls }) {
  const found = broken.map((text) =>
    el("div", { class: "note" }, "A call that does not follow the model's own format:", el("pre", {}, text)));
  if (state === "waiting") found.push(el("p", { class: "pending" }, "Waiting"));
  if (state === "stopped") found.push(el("p", { class: "note" }, "Stopped."));
  if (state === "failed") found.push(el("p", { class: "note bad", role: "alert" }, error));
  if (finish === "length") found.push(el("p", { class: "note" }, "The answer reached its limit of tokens."));
  if (state === "done" && !content.trim() && !reasoning && !calls.length && !broken.length)
    found.push(el("p", { class: "note" }, "The model ended without a word."));
  return found;
}
