// The part of Markdown that models write, as elements: headings, lists, quotes, tables, rules, code.

import { el } from "./dom.js";
import { inline } from "./inline.js";

const DEEPEST = 12; // quotes and lists within each other
const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const DIVIDER = /^ {0,3}\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** Make `place` show `text`. Blocks that are the same as before stay, so that a stream costs its last block. */
export function show(place, text) {
  const found = blocks(text.split("\n"));
  found.forEach(({ source, make }, index) => {
    const old = place.children[index];
    if (old?.source === source) return;
    const made = make();
    made.source = source;
    if (old) old.replaceWith(made);
    else place.append(made);
  });
  while (place.children.length > found.length) place.lastChild.remove();
}

function blocks(lines, depth = 0) {
  const found = [];
  const rules = depth < DEEPEST ? [code, single, quote, list, table, paragraph] : [paragraph];
  for (let at = 0; at < lines.length; ) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    let block = null;
    for (const rule of rules) if ((block ??= rule(lines, at, depth))) break;
    const { end, make } = block;
    found.push({ source: lines.slice(at, end).join("\n"), make });
    at = end;
  }
  return found;
}

const nested = (lines, depth) => blocks(lines, depth + 1).map(({ make }) => make());

function code(lines, at) {
  const [, indent, fence, language] = FENCE.exec(lines[at]) ?? [];
  if (fence === undefined) return null;
  let end = at + 1;
  while (end < lines.length && !closes(lines[end], fence)) end += 1;
  const text = lines.slice(at + 1, end).map((line) => line.replace(new RegExp(`^ {0,${indent.length}}`), ""));
  return { end: Math.min(end + 1, lines.length), make: () => codeBlock(text.join("\n"), language.trim()) };
}

const closes = (line, fence) => {
  const bare = line.trim();
  return bare.length >= fence.length && bare === fence[0].repeat(bare.length);
};

function codeBlock(text, language) {
  const copy = el("button", { type: "button", class: "quiet", onclick: () => copied(copy, text) }, "Copy");
  const head = el("div", { class: "code-head" }, el("span", {}, language), navigator.clipboard ? copy : null);
  return el("div", { class: "code-block" }, head, el("pre", { tabIndex: 0 }, el("code", {}, text)));
}

async function copied(copy, text) {
  await navigator.clipboard.writeText(text);
  copy.textContent = "Copied";
  setTimeout(() => (copy.textContent = "Copy"), 1500);
}

function single(lines, at) {
  if (RULE.test(lines[at])) return { end: at + 1, make: () => el("hr") };
  const [, marks, text] = HEADING.exec(lines[at]) ?? [];
  return marks ? { end: at + 1, make: () => el(`h${Math.min(6, marks.length + 2)}`, {}, inline(text)) } : null;
}

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  if (end === at) return null;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return { end, make: () => el("blockquote", {}, nested(inner, depth)) };
}

function list(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  if (!first) return null;
  const ordered = /\d/.test(first[2]);
  const items = [];
  let end = at;
  for (let item = first; item && /\d/.test(item[2]) === ordered && item[1].length <= first[1].length + 1; ) {
    const width = item[0].length;
    const inner = [lines[end].slice(width)];
    end += 1;
    while (end < lines.length && belongs(lines, end, Math.min(width, item[1].length + 2))) {
      inner.push(lines[end].replace(new RegExp(`^ {0,${width}}`), ""));
      end += 1;
    }
    items.push(inner);
    item = end < lines.length ? ITEM.exec(lines[end]) : null;
  }
  const start = ordered ? { start: parseInt(first[2], 10) } : {};
  return { end, make: () => el(ordered ? "ol" : "ul", start, items.map((inner) => listItem(nested(inner, depth)))) };
}

/** Whether a line goes on an item whose text stands `width` columns in: blank lines do when such a line follows. */
function belongs(lines, at, width) {
  if (lines[at].trim()) {
    const indented = lines[at].search(/\S/) >= width;
    return indented || (lines[at - 1].trim() !== "" && !begins(lines, at));
  }
  let next = at + 1;
  while (next < lines.length && !lines[next].trim()) next += 1;
  return next < lines.length && (lines[next].search(/\S/) >= width || ITEM.test(lines[next]));
}

const begins = (lines, at) =>
  [FENCE, HEADING, RULE, QUOTE, ITEM].some((rule) => rule.test(lines[at]));

function listItem(made) {
  // A short item is no paragraph.
  return el("li", {}, made.flatMap((one, i) => (i === 0 && one.tagName === "P" ? [...one.childNodes] : [one])));
}

function table(lines, at) {
  if (!lines[at].includes("|") || !DIVIDER.test(lines[at + 1] ?? "")) return null;
  if (!lines[at + 1].includes("-") || cells(lines[at]).length !== cells(lines[at + 1]).length) return null;
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const row = (kind) => (line) => el("tr", {}, cells(line).map((cell) => el(kind, {}, inline(cell))));
  const make = () =>
    el("div", { class: "table", tabIndex: 0 },
      el("table", {}, el("thead", {}, row("th")(lines[at])), el("tbody", {}, lines.slice(at + 2, end).map(row("td")))));
  return { end, make };
}

const cells = (line) => {
  const inner = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
};

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !begins(lines, end)) end += 1;
  return { end, make: () => el("p", {}, inline(lines.slice(at, end).join("\n"))) };
}
