// The figures below an answer: what the prompt cost, what it did not cost, and how fast it went.

import { speed } from "./answer.js";
import { count, el, percent, rate, seconds } from "./dom.js";
import { bar } from "./status.js";

/** Elements for what is known of `answer` so far. */
export function figuresOf(answer) {
  const { usage, times } = answer;
  if (!usage) return [];
  const shown = [];
  if (usage.cached !== null) {
    const { cached, prompt } = usage;
    shown.push(el("span", { title: "Prompt tokens that continued from the cache" }, bar(cached / prompt),
      `${count(cached)} of ${count(prompt)} prompt tokens cached (${percent(cached, prompt)})`));
  } else {
    shown.push(el("span", {}, `${count(usage.prompt)} prompt tokens`));
  }
  if (times.first !== null) shown.push(el("span", {}, `first token ${seconds((times.first - times.sent) / 1000)}`));
  const perSecond = speed(answer);
  shown.push(el("span", {}, `${tokens(usage.output)}${perSecond ? ` at ${rate(perSecond)}/s` : ""}`));
  return shown;
}

export const tokens = (number) => `${count(number)} ${number === 1 ? "token" : "tokens"}`;
