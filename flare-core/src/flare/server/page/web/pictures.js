// Images on their way into a message: from files, the clipboard or a drop, as data addresses.

import { button, el } from "./dom.js";

const TAKEN = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/** A row of thumbnails in `place`, each with a button that takes it out. `change` is told of every change. */
export class Pictures {
  constructor(place, images = [], change = () => {}) {
    this.place = place;
    this.images = [...images];
    this.change = change;
    this.draw();
  }

  /** Add the images among `files`; returns what is wrong with the others, or "". */
  async add(files) {
    const taken = [...files].filter((file) => TAKEN.includes(file.type));
    const read = await Promise.all(taken.map(dataAddress));
    this.images.push(...read);
    this.draw();
    const rest = [...files].filter((file) => !TAKEN.includes(file.type));
    return rest.length ? `${rest.map((file) => file.name).join(", ")}: only PNG, JPEG, WebP and GIF are taken.` : "";
  }

  set(images) {
    this.images = [...images];
    this.draw();
  }

  draw() {
    this.place.replaceChildren(
      ...this.images.map((url, index) =>
        el("li", {}, el("img", { src: url, alt: `Image ${index + 1}` }),
          button("✕", () => this.set(this.images.filter((_, other) => other !== index)),
            { class: "icon", "aria-label": `Remove image ${index + 1}` }))),
    );
    this.place.hidden = this.images.length === 0;
    this.change();
  }
}

function dataAddress(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** Files of a paste or a drop. */
export const filesOf = (transfer) => [...(transfer?.files ?? [])];
