// The conversations of this tab, and the list of them.

import { button, el, find } from "./dom.js";
import { load, save } from "./stored.js";
import { newConversation, title } from "./tree.js";

export class Conversations {
  /** `open` is called when another conversation became `current`, `gone` for one that is deleted. */
  constructor(open, gone) {
    this.open = open;
    this.gone = gone;
    this.all = load("conversations", []);
    this.all.forEach(interrupted);
    this.current = this.all.find(({ id }) => id === load("current", "")) ?? this.all[0] ?? null;
    if (this.current === null) this.all.push((this.current = newConversation()));
    addEventListener("pagehide", () => this.keep());
    find("#new").addEventListener("click", () => this.add());
    this.draw();
  }

  /** Begin another one; one without messages is not left behind. */
  add() {
    const unused = this.all.find(({ next }) => next === null);
    if (unused === undefined) this.all.unshift(newConversation());
    this.choose(unused ?? this.all[0]);
  }

  choose(conversation) {
    this.current = conversation;
    this.changed();
    this.open();
  }

  remove(conversation) {
    if (conversation.next !== null && !confirm(`Delete “${title(conversation)}”?`)) return;
    this.gone(conversation);
    this.all = this.all.filter((other) => other !== conversation);
    if (!this.all.length) this.all.push(newConversation());
    if (this.current === conversation) this.choose(this.all[0]);
    else this.changed();
  }

  /** Something in it is another one now: keep it, not for every key that is pressed. */
  changed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.keep(), 300);
    this.draw();
  }

  keep() {
    save("current", this.current.id);
    save("conversations", this.all, () =>
      (find("#kept").textContent = "Too large for the tab to keep: gone with a reload."));
  }

  draw() {
    const begun = this.all.filter(({ next }) => next !== null);
    find("#conversations").replaceChildren(...begun.map((one) =>
      el("li", {},
        button(title(one), () => this.choose(one),
          { class: "quiet", "aria-current": one === this.current ? "true" : null }),
        button("✕", () => this.remove(one), { class: "icon", "aria-label": `Delete: ${title(one)}` }))));
  }
}

/** A stream does not outlive a reload. */
function interrupted(conversation) {
  for (const node of Object.values(conversation.nodes))
    if (node.state === "waiting" || node.state === "streaming") node.state = "stopped";
}
