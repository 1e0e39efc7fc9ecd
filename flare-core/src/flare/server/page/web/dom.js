// Elements are made, never parsed: whatever a model writes stays text.

/**
 * An element. `properties`: `class`, `on*` listeners, `data-*` and `aria-*` attributes, everything else properties
 * of the element. Children are nodes or strings; null and false are left out.
 */
export function el(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key.includes("-") || key === "role") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== false && child !== undefined));
  return made;
}

/** A button that does `action`. */
export function button(label, action, properties = {}) {
  return el("button", { type: "button", onclick: action, ...properties }, label);
}

export const find = (selector) => document.querySelector(selector);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** `12,345`. */
export const count = (value) => whole.format(value);

/** Tokens per second: one decimal below 100. */
export const rate = (value) => (value < 100 ? tenths : whole).format(value);

/** `0.42 s`, `3.1 s`, `75 s`. */
export const seconds = (value) =>
  `${value < 1 ? value.toFixed(2) : value < 10 ? value.toFixed(1) : whole.format(value)} s`;

/** `64 %`, and never 100 or 0 by rounding. */
export function percent(part, all) {
  if (!all) return "0 %";
  const exact = (100 * part) / all;
  return `${part < all ? Math.min(99, Math.max(part > 0 ? 1 : 0, Math.round(exact))) : 100} %`;
}

/** A textarea as high as its text. */
export function fit(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
}
