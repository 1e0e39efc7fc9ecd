// The tools that a model may call: JSON that a person types, checked before it is sent.

import { find } from "./dom.js";
import { load, save } from "./stored.js";

const EXAMPLE = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather of a place, now.",
      parameters: {
        type: "object",
        properties: { place: { type: "string", description: "A city" } },
        required: ["place"],
      },
    },
  },
];

/** `text` as the field `tools` of a request; null for none. Bare functions are wrapped. Raises SyntaxError. */
export function parsed(text) {
  if (!text.trim()) return null;
  const value = JSON.parse(text);
  const tools = (Array.isArray(value) ? value : [value]).map((tool) =>
    tool !== null && typeof tool === "object" && !("function" in tool) && "name" in tool
      ? { type: "function", function: tool }
      : tool,
  );
  for (const tool of tools) {
    if (typeof tool?.function?.name !== "string") throw new SyntaxError("every tool needs a function with a name");
  }
  return tools.length ? tools : null;
}

/** The dialog. */
export class Tools {
  constructor() {
    this.dialog = find("#tools");
    this.area = this.dialog.querySelector("textarea");
    this.badge = find("#open-tools b");
    this.area.value = load("tools", "");
    this.area.addEventListener("input", () => this.changed());
    find("#open-tools").addEventListener("click", () => this.dialog.showModal());
    find("#tools-example").addEventListener("click", () => {
      this.area.value = JSON.stringify(EXAMPLE, null, 2);
      this.changed();
    });
    this.changed();
  }

  /** Models that call none have no button for it, and are sent none. */
  offer(offered) {
    this.offered = offered;
    find("#open-tools").hidden = !offered;
  }

  /** See `parsed`. */
  value() {
    return this.offered ? parsed(this.area.value) : null;
  }

  changed() {
    save("tools", this.area.value);
    const found = find("#tools-found");
    let names = [];
    let problem = "";
    try {
      names = (parsed(this.area.value) ?? []).map((tool) => tool.function.name);
    } catch (error) {
      problem = error.message;
    }
    found.classList.toggle("bad", problem !== "");
    found.textContent = problem
      ? `This is not a list of tools: ${problem}.`
      : names.length ? `Tools: ${names.join(", ")}` : "No tools.";
    this.badge.textContent = problem ? "!" : String(names.length);
    this.badge.classList.toggle("bad", problem !== "");
    this.badge.hidden = !problem && !names.length;
  }
}
