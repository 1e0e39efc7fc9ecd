// Editing a message that was sent: what comes of it is a branch.

import { button, el, fit } from "./dom.js";
import { Pictures, filesOf } from "./pictures.js";

/** A form for the message `node`; `send` gets text and images. */
export function editForm(node, { send, cancel, takesImages }) {
  const pictures = new Pictures(el("ul", { class: "pictures" }), node.images);
  const area = el("textarea", { rows: 1, value: node.text, "aria-label": "Edited message" });
  area.addEventListener("input", () => fit(area));
  const form = el("form", {
    class: "message user edit",
    "aria-label": "Edit message",
    onsubmit: (event) => {
      event.preventDefault();
      if (area.value.trim() || pictures.images.length) send(area.value, pictures.images);
    },
    onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target === area) {
        event.preventDefault();
        form.requestSubmit();
      }
      if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      }
    },
    onpaste: (event) => {
      if (takesImages && filesOf(event.clipboardData).length) pictures.add(filesOf(event.clipboardData));
    },
  },
  pictures.place, area,
  el("div", { class: "row" }, el("span", { class: "hint" }, "The message as it was stays, on a branch of its own."),
    button("Cancel", cancel), el("button", { type: "submit", class: "primary" }, "Send")));
  return { form, ready: () => (fit(area), area.focus(), area.setSelectionRange(area.value.length, area.value.length)) };
}
