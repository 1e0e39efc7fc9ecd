// Where messages are written.

import { find, fit } from "./dom.js";
import { Pictures, filesOf } from "./pictures.js";

export class Composer {
  /** `actions`: `send(text, images)`, which says whether it was taken, `stop()`, `editLast()`, `draft(text)`. */
  constructor(actions) {
    this.actions = actions;
    this.form = find("#composer");
    this.area = find("#text");
    this.pictures = new Pictures(this.form.querySelector(".pictures"));
    this.images = false;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.area.addEventListener("input", () => {
      fit(this.area);
      actions.draft(this.area.value);
    });
    this.area.addEventListener("keydown", (event) => this.key(event));
    find("#stop").addEventListener("click", actions.stop);
    find("#attach").addEventListener("click", () => find("#files").click());
    find("#files").addEventListener("change", (event) => {
      this.add([...event.target.files]);
      event.target.value = "";
    });
    this.area.addEventListener("paste", (event) => this.given(event, event.clipboardData));
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => this.given(event, event.dataTransfer));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) actions.stop();
    });
  }

  /** What the model takes: the entry `chat` of /v1/models. */
  offer(chat) {
    this.images = chat?.images ?? false;
    find("#attach").hidden = !this.images;
    this.notice(chat === null ? "This model has no chat template; it serves text completions only." : "");
    this.form.querySelectorAll("textarea, #send").forEach((one) => (one.disabled = chat === null));
  }

  /** Show what was being written. */
  open(draft) {
    this.area.value = draft;
    this.pictures.set([]);
    this.notice("");
    fit(this.area);
    // Where a keyboard would cover half of the page, it comes when it is asked for.
    if (!matchMedia("(hover: none)").matches) this.area.focus();
  }

  busy(answering) {
    find("#send").hidden = answering;
    find("#stop").hidden = !answering;
  }

  notice(text) {
    find("#notice").textContent = text;
    find("#notice").hidden = !text;
  }

  send() {
    const { value } = this.area;
    if (!value.trim() && !this.pictures.images.length) return;
    if (!this.actions.send(value, this.pictures.images)) return;
    this.area.value = "";
    this.pictures.set([]);
    this.actions.draft("");
    fit(this.area);
  }

  key(event) {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.send();
    } else if (event.key === "ArrowUp" && !this.area.value) {
      event.preventDefault();
      this.actions.editLast();
    }
  }

  /** A paste or a drop. */
  given(event, transfer) {
    const files = filesOf(transfer);
    if (!files.length) return;
    event.preventDefault();
    this.add(files);
  }

  async add(files) {
    if (!this.images) this.notice("This model takes no images.");
    else this.notice(await this.pictures.add(files));
  }
}
