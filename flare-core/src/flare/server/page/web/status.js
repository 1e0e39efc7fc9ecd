// The panel that shows what the server is doing. It asks only while it can be seen.

import { count, el, find, percent, rate } from "./dom.js";
import { figures, parse } from "./metrics.js";
import { ask } from "./server.js";

const PERIOD = 2000; // milliseconds between readings

export class Status {
  constructor() {
    this.place = find("#status");
    this.last = null;
    this.timer = null;
    document.addEventListener("visibilitychange", () => this.look());
    new IntersectionObserver(() => this.look()).observe(this.place);
    this.draw("…", "wait");
    this.look();
  }

  visible() {
    return document.visibilityState === "visible" && this.place.checkVisibility({ visibilityProperty: true });
  }

  /** Read now, and go on while the panel is visible. */
  async look() {
    clearTimeout(this.timer);
    if (this.reading || !this.visible()) return;
    this.reading = true;
    try {
      await this.read();
    } finally {
      this.reading = false;
    }
    this.timer = setTimeout(() => this.look(), PERIOD);
  }

  async read() {
    const now = performance.now();
    try {
      const reading = parse(await (await ask("metrics")).text());
      const shown = figures(reading, this.last, (now - this.last?.at) / 1000);
      this.last = { ...reading, at: now };
      if (shown.up) this.draw("Ready", "good", shown);
      else this.draw(await reason(), "wait", shown);
    } catch (error) {
      this.last = null;
      this.draw(error.message, "bad");
    }
  }

  draw(state, kind, shown = {}) {
    const { running, waiting, speed, used, pages, prefixes, held, queried, hit, version } = shown;
    const row = (name, value, more = null) =>
      value === undefined ? null : [el("dt", {}, name), el("dd", {}, value, more)];
    const rows = [
      row("Requests", running === undefined ? undefined : `${count(running)} running, ${count(waiting)} waiting`),
      row("Speed", speed === undefined ? undefined : speed > 0 ? `${rate(speed)} tokens/s` : "idle"),
      row("In use", pages ? `${percent(used, 1)} of ${count(pages)} pages` : undefined, bar(used)),
      row("Prefixes", prefixes === undefined ? undefined : `${count(prefixes)} cached in ${count(held)} pages`),
      row("Reused", queried ? `${percent(hit, queried)} of ${count(queried)} tokens` : undefined, bar(hit / queried)),
    ];
    this.place.replaceChildren(
      el("p", { class: `state ${kind}` }, state),
      el("dl", {}, rows),
      version ? el("p", { class: "hint" }, `Flare ${version}`) : "",
    );
  }
}

async function reason() {
  try {
    await ask("ready");
    return "Ready";
  } catch (error) {
    return error.message;
  }
}

/** A bar that is full to `share`, 0 to 1. */
export function bar(share) {
  const fill = el("i");
  fill.style.width = `${100 * Math.min(1, Math.max(0, share || 0))}%`;
  return el("span", { class: "bar", "aria-hidden": "true" }, fill);
}
