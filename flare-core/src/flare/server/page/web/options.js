// System prompt, sampling and key: a dialog whose fields are what requests say.

import { el, find } from "./dom.js";
import { apiKey, useKey, wantsKey } from "./server.js";
import { load, save } from "./stored.js";

const NUMBERS = ["temperature", "top_p", "max_tokens", "seed"];

export class Options {
  /** `keyed` is called when another API key was given. */
  constructor(keyed) {
    this.dialog = find("#options");
    this.fields = this.dialog.querySelector("form").elements;
    this.badge = find("#open-options b");
    const stored = load("options", {});
    for (const name of ["system", ...NUMBERS]) this.fields[name].value = stored[name] ?? "";
    this.effort = stored.reasoning_effort ?? "";
    this.dialog.addEventListener("input", () => this.changed());
    find("#open-options").addEventListener("click", () => {
      this.fields.key.value = apiKey();
      find("#key").hidden = !wantsKey();
      this.dialog.showModal();
    });
    this.dialog.addEventListener("close", () => {
      if (this.fields.key.value.trim() === apiKey()) return;
      useKey(this.fields.key.value);
      keyed();
    });
    this.changed();
  }

  /** What the served model has: defaults as placeholders, its ranges, its efforts. */
  offer(model) {
    for (const name of ["temperature", "top_p"]) {
      const { default: usual, low, high } = model.sampling[name];
      const field = this.fields[name];
      field.placeholder = String(usual);
      field.disabled = low === high;
      field.title = low === high ? "This model has one value." : `${low} to ${high}`;
    }
    this.fields.max_tokens.placeholder = "what the context leaves";
    const chat = model.chat ?? { efforts: [], thinking_switch: false };
    const levels = [...(chat.thinking_switch ? ["none"] : []), ...chat.efforts];
    const select = this.fields.reasoning_effort;
    const option = (level) => el("option", { value: level }, level || "the model's default");
    select.replaceChildren(...["", ...levels].map(option));
    select.value = levels.includes(this.effort) ? this.effort : "";
    find("#effort").hidden = levels.length === 0;
    this.changed();
  }

  get system() {
    return this.fields.system.value;
  }

  /** Fields of a request. Raises RangeError for a number that is none. */
  values() {
    const values = {};
    for (const name of NUMBERS) {
      const field = this.fields[name];
      if (field.validity.badInput) throw new RangeError(`${field.parentNode.firstChild.textContent}: not a number.`);
      if (field.value !== "" && !field.disabled) values[name] = Number(field.value);
    }
    if (this.fields.reasoning_effort.value) values.reasoning_effort = this.fields.reasoning_effort.value;
    return values;
  }

  changed() {
    const stored = { system: this.system };
    for (const name of NUMBERS) stored[name] = this.fields[name].value;
    if (this.fields.reasoning_effort.options.length) this.effort = this.fields.reasoning_effort.value;
    stored.reasoning_effort = this.effort;
    save("options", stored);
    const set = Object.values(stored).filter((value) => value.trim()).length;
    this.badge.textContent = String(set);
    this.badge.hidden = set === 0;
  }
}
