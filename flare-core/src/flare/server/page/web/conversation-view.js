// The shown path of a conversation, message by message.

import { completeCalls } from "./answer.js";
import { AnswerView } from "./answer-view.js";
import { button, el, fit } from "./dom.js";
import { editForm } from "./edit-form.js";
import { resultForm } from "./result-form.js";
import { parentOf, path, siblings } from "./tree.js";

export class ConversationView {
  /** `actions`: `edit(node, text, images)`, `again(answer)`, `results(answer, results)`, `choose(node)`, `changed()`,
   * and `takesImages()`. */
  constructor(place, actions) {
    this.place = place;
    this.actions = actions;
    this.editing = null;
    this.views = new Map();
  }

  /** Draw all of `conversation`. */
  draw(conversation) {
    if (conversation !== this.conversation) this.editing = null;
    this.conversation = conversation;
    this.views.clear();
    const nodes = path(conversation);
    const made = nodes.map((node) => this.message(node));
    const last = nodes.at(-1);
    if (last?.kind === "answer" && last.state === "done" && completeCalls(last).length) made.push(this.results(last));
    this.place.replaceChildren(...made);
    this.place.querySelectorAll("textarea").forEach(fit);
    this.begin?.();
    this.begin = null;
  }

  /** Follow a stream. */
  update(answer) {
    this.views.get(answer.id)?.update();
  }

  /** Open the last message of the user, or the results, for editing. */
  editLast() {
    const node = path(this.conversation).filter(({ kind }) => kind === "user").at(-1);
    if (node) this.edit(node);
  }

  edit(node) {
    this.editing = node.id;
    this.draw(this.conversation);
  }

  message(node) {
    if (node.id === this.editing) return this.editor(node);
    if (node.kind === "answer") return this.answer(node);
    const edit = button("Edit", () => this.edit(node), { class: "quiet" });
    const name = node.kind === "user" ? "You" : "Results of tools";
    return el("article", { class: `message ${node.kind}`, "aria-label": name },
      node.kind === "user" ? said(node) : node.results.map(result),
      el("footer", {}, el("div", { class: "actions" }, this.branches(node), edit)));
  }

  answer(node) {
    const failed = node.state === "failed";
    const again = button(failed ? "Try again" : "Regenerate", () => this.actions.again(node), { class: "quiet" });
    // Browsers give the clipboard to pages of this machine, or that come over TLS.
    const copies = navigator.clipboard && !failed;
    const copy = copies && button("Copy", () => navigator.clipboard.writeText(node.content), { class: "quiet" });
    const view = new AnswerView(node, [this.branches(node), copy, again]);
    this.views.set(node.id, view);
    return view.element;
  }

  editor(node) {
    const cancel = () => {
      this.editing = null;
      this.draw(this.conversation);
    };
    if (node.kind === "results") {
      const drafts = Object.fromEntries(node.results.map(({ id, text }) => [id, text]));
      const calls = completeCalls(parentOf(this.conversation, node));
      const send = (results) => this.sent(() => this.actions.results(parentOf(this.conversation, node), results));
      return resultForm(calls, drafts, { send, cancel, changed: () => {} });
    }
    const send = (text, images) => this.sent(() => this.actions.edit(node, text, images));
    const { form, ready } = editForm(node, { send, cancel, takesImages: this.actions.takesImages() });
    this.begin = ready;
    return form;
  }

  sent(work) {
    this.editing = null;
    work();
  }

  results(answer) {
    const calls = completeCalls(answer);
    answer.drafts ??= {};
    return resultForm(calls, answer.drafts, {
      changed: this.actions.changed,
      send: (results) => this.actions.results(answer, results),
    });
  }

  /** Arrows between a message and those beside it. */
  branches(node) {
    const all = siblings(this.conversation, node);
    if (all.length < 2) return null;
    const at = all.indexOf(node);
    const arrow = (label, to, name) =>
      button(label, () => this.actions.choose(all[to]), { class: "icon", disabled: !all[to], "aria-label": name });
    const place = el("span", {}, `${at + 1} / ${all.length}`);
    return el("span", { class: "branches" },
      arrow("‹", at - 1, "Earlier branch"), place, arrow("›", at + 1, "Later branch"));
  }
}

function said({ text, images }) {
  const shown = images.map((url, index) => el("li", {}, el("img", { src: url, alt: `Image ${index + 1}` })));
  return [
    shown.length > 0 && el("ul", { class: "pictures" }, shown),
    text !== "" && el("div", { class: "said" }, text),
  ];
}

const result = ({ name, text }) =>
  el("div", { class: "result" }, el("span", { class: "hint" }, `Result of ${name}`), el("pre", { tabIndex: 0 }, text));
