// Markdown within a line: code, bold, italic, struck out, links to web addresses.

import { el } from "./dom.js";

const DEEPEST = 8;
const FARTHEST = 2000; // characters between a mark and its end: without a limit odd texts take quadratic time
const WORD = /\w/; // underscores within words are letters of a name
const MARKS = [
  ["**", "strong"],
  ["__", "strong"],
  ["~~", "del"],
  ["*", "em"],
  ["_", "em"],
];

/** Nodes for `text`; line breaks stay, as the style shows them. */
export function inline(text, depth = 0) {
  const nodes = [];
  let plain = "";
  const put = (node) => {
    if (plain) nodes.push(plain);
    plain = "";
    nodes.push(node);
  };
  for (let at = 0; at < text.length; ) {
    const found = "\\`*_~[".includes(text[at]) ? special(text, at, depth) : null;
    if (found === null) {
      plain += text[at];
      at += 1;
    } else {
      if (typeof found.node === "string") plain += found.node;
      else put(found.node);
      at = found.end;
    }
  }
  if (plain) nodes.push(plain);
  return nodes;
}

function special(text, at, depth) {
  if (text[at] === "\\") return escaped(text[at + 1] ?? "", at);
  if (text[at] === "`") return codeSpan(text, at);
  if (depth === DEEPEST) return null;
  return text[at] === "[" ? link(text, at, depth) : marked(text, at, depth);
}

const escaped = (mark, at) =>
  /[\\`*_~[\]{}()#+\-.!|>]/.test(mark) ? { node: mark, end: at + 2 } : null;

function codeSpan(text, at) {
  const fence = /^`+/.exec(text.slice(at, at + 64))[0];
  let close = text.indexOf(fence, at + fence.length);
  while (close >= 0 && text[close + fence.length] === "`") {
    let behind = close;
    while (text[behind] === "`") behind += 1;
    close = text.indexOf(fence, behind);
  }
  if (close < 0) return { node: fence, end: at + fence.length };
  const code = text.slice(at + fence.length, close).replace(/\n/g, " ");
  return { node: el("code", {}, code.replace(/^ (.*\S.*) $/, "$1")), end: close + fence.length };
}

function marked(text, at, depth) {
  const [mark, name] = MARKS.find(([one]) => text.startsWith(one, at)) ?? [];
  if (mark === undefined) return null;
  const start = at + mark.length;
  const opens = /\S/.test(text[start] ?? "") && !(mark[0] === "_" && WORD.test(text[at - 1] ?? ""));
  const close = opens ? closing(text, start, mark) : -1;
  if (close < 0) return { node: mark, end: start };
  return { node: el(name, {}, inline(text.slice(start, close), depth + 1)), end: close + mark.length };
}

/** Where the text that `mark` began ends, or -1. */
function closing(text, start, mark) {
  let at = text.indexOf(mark, start + 1);
  while (at >= 0 && at <= start + FARTHEST) {
    const behind = text[at + mark.length] ?? "";
    const doubled = mark.length === 1 && behind === mark; // `**` is no end of what `*` began
    if (!doubled && /\S/.test(text[at - 1]) && !(mark[0] === "_" && WORD.test(behind))) return at;
    at = text.indexOf(mark, at + (doubled ? 2 : 1));
  }
  return -1;
}

function link(text, at, depth) {
  const near = text.slice(at, at + FARTHEST);
  const [whole, label, address] = /^\[([^[\]]*)\]\((https?:\/\/[^\s()]*)(?: [^)]*)?\)/i.exec(near) ?? [];
  if (address === undefined) return null;
  const options = { href: address, title: address, target: "_blank", rel: "noopener noreferrer nofollow" };
  return { node: el("a", options, inline(label, depth + 1)), end: at + whole.length };
}
