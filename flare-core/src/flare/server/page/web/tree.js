// A conversation is a tree: an edited message or another answer is a branch beside the first one, and every path
// from the root is a prompt whose beginning the server may have in its cache.
//
// Nodes are plain data: `kind` is `user` (`text`, `images`), `answer` (see answer.js) or `results` (`results`: ids
// and texts). `next` of a node, and of the conversation, is the child that is shown.

import { completeCalls, isEmpty } from "./answer.js";

const newId = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export const newConversation = () => ({ id: newId(), nodes: {}, next: null, draft: "" });

/** Add `node` below `parent` (null: at the root) and show it. */
export function grow(conversation, parent, node) {
  const added = { ...node, id: newId(), parent: parent?.id ?? null, next: null };
  conversation.nodes[added.id] = added;
  (parent ?? conversation).next = added.id;
  return added;
}

/** The nodes from the root to `last`, or as far as the shown path goes. */
export function path(conversation, last = null) {
  const nodes = [];
  if (last !== null) {
    for (let node = last; node; node = conversation.nodes[node.parent]) nodes.unshift(node);
    return nodes;
  }
  for (let id = conversation.next; id; id = conversation.nodes[id].next) nodes.push(conversation.nodes[id]);
  return nodes;
}

/** `node` and those beside it, the oldest first. */
export const siblings = (conversation, node) =>
  Object.values(conversation.nodes).filter((other) => other.parent === node.parent);

export const parentOf = (conversation, node) => conversation.nodes[node.parent] ?? null;

/** Show `node` where one of its siblings was. */
export function show(conversation, node) {
  (parentOf(conversation, node) ?? conversation).next = node.id;
}

/** Take out a leaf. */
export function prune(conversation, node) {
  delete conversation.nodes[node.id];
  const parent = parentOf(conversation, node) ?? conversation;
  if (parent.next === node.id) parent.next = siblings(conversation, node).at(-1)?.id ?? null;
}

/** Its first words. */
export function title(conversation) {
  const first = path(conversation)[0];
  return first === undefined ? "New conversation" : first.text.trim().slice(0, 80) || "Images";
}

/** The messages of a request that continues `nodes`. */
export function messages(nodes, system) {
  const all = system.trim() ? [{ role: "system", content: system }] : [];
  for (const node of nodes) {
    if (node.kind === "user") all.push({ role: "user", content: parts(node) });
    else if (node.kind === "answer") all.push(...answered(node));
    else for (const { id, text } of node.results) all.push({ role: "tool", tool_call_id: id, content: text });
  }
  return all;
}

function parts({ text, images }) {
  if (!images.length) return text;
  const shown = images.map((url) => ({ type: "image_url", image_url: { url } }));
  return text ? [...shown, { type: "text", text }] : shown;
}

function answered(answer) {
  if (isEmpty(answer)) return [];
  const calls = completeCalls(answer).map(({ id, name, arguments: text }) => ({
    id,
    type: "function",
    function: { name, arguments: text },
  }));
  const message = { role: "assistant", content: answer.content };
  if (answer.reasoning) message.reasoning_content = answer.reasoning;
  if (calls.length) message.tool_calls = calls;
  return [message];
}
