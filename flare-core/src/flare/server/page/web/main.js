// The page: what belongs to what.

import { begun } from "./answer.js";
import { Composer } from "./composer.js";
import { ConversationView } from "./conversation-view.js";
import { Conversations } from "./conversations.js";
import { count, find } from "./dom.js";
import { Exchanges } from "./exchanges.js";
import { withKey } from "./keys.js";
import { Options } from "./options.js";
import { follow } from "./scroll.js";
import { servedModel } from "./server.js";
import { addSide } from "./side.js";
import { Status } from "./status.js";
import { Tools } from "./tools.js";
import { grow, messages, parentOf, path, prune, show } from "./tree.js";

let model = null;
const side = addSide();
const scroll = follow(find("#scroll"));
const options = new Options(() => learn());
const tools = new Tools();
const conversations = new Conversations(open, (conversation) => exchanges.stop(conversation));
const view = new ConversationView(find("#messages"), {
  edit: (node, text, images) => say(parentOf(conversations.current, node), text, images),
  again,
  results,
  choose(node) {
    show(conversations.current, node);
    draw();
  },
  changed: () => conversations.changed(),
  takesImages: () => model?.chat?.images ?? false,
});
const composer = new Composer({
  send: (text, images) => say(path(conversations.current).at(-1) ?? null, text, images),
  stop: () => exchanges.stop(conversations.current),
  editLast: () => view.editLast(),
  draft: (text) => {
    conversations.current.draft = text;
    conversations.changed();
  },
});

let waiting = false;
const exchanges = new Exchanges(
  (conversation, answer) => {
    if (conversation !== conversations.current || waiting) return;
    waiting = true; // drawn once a frame, however fast tokens come
    requestAnimationFrame(() => {
      waiting = false;
      view.update(answer);
      scroll.keep();
    });
  },
  (conversation, answer) => {
    conversations.changed();
    if (conversation !== conversations.current) return;
    draw();
    find("#spoken").textContent = answer.state === "failed" ? "" : "The answer is complete.";
  },
);

/** Show a conversation. */
function open() {
  draw();
  composer.open(conversations.current.draft);
  scroll.end();
  side.close();
}

function draw() {
  view.draw(conversations.current);
  composer.busy(exchanges.of(conversations.current) !== undefined);
  document.body.classList.toggle("empty", conversations.current.next === null);
  scroll.keep();
}

/** A message below `parent`, and the answer to it. False when it cannot be sent as it is. */
function say(parent, text, images) {
  const request = requested();
  if (request === null) return false;
  const node = grow(conversations.current, parent, { kind: "user", text, images: [...images] });
  answer(node, request);
  return true;
}

/** The results of an answer's calls, and the answer to them. */
function results(called, given) {
  const request = requested();
  if (request === null) return;
  const names = Object.fromEntries(called.calls.map(({ id, name }) => [id, name]));
  const named = given.map((result) => ({ ...result, name: names[result.id] }));
  answer(grow(conversations.current, called, { kind: "results", results: named }), request);
}

/** Another answer beside `old`; one that failed before it began makes room. */
function again(old) {
  const request = requested();
  if (request === null) return;
  const parent = parentOf(conversations.current, old);
  if (old.state === "failed" && !old.content && !old.reasoning && !old.calls.length) prune(conversations.current, old);
  answer(parent, request);
}

/** What a request says besides its messages; null, with a notice, when it cannot be said, or not now. */
function requested() {
  if (exchanges.of(conversations.current)) return null;
  let called = null;
  try {
    called = tools.value();
  } catch (error) {
    composer.notice(`The tools are not a list of functions (${error.message}). Mend or empty them, and send again.`);
    return null;
  }
  try {
    return { ...(model ? { model: model.id } : {}), ...options.values(), ...(called ? { tools: called } : {}) };
  } catch (error) {
    composer.notice(`${error.message} Mend it in the options, and send again.`);
    return null;
  }
}

function answer(parent, request) {
  const conversation = conversations.current;
  const node = grow(conversation, parent, { kind: "answer", ...begun(performance.now()) });
  const body = {
    ...request,
    messages: messages(path(conversation, parent), options.system),
    prompt_cache_key: `page-${conversation.id}`,
  };
  composer.notice("");
  find("#spoken").textContent = "Answering.";
  conversations.changed();
  exchanges.start(conversation, node, body);
  draw();
  scroll.end();
}

/** Ask what is served, and offer what it takes; ask again while the server is away or loads. */
async function learn() {
  try {
    model = await withKey(servedModel);
  } catch (error) {
    composer.notice(error.message);
    if (error.status !== 401) setTimeout(learn, 4000);
    return;
  }
  if (model.max_model_len === null) setTimeout(learn, 2000);
  find("#model").textContent = document.title = model.id;
  find("#context").textContent = model.max_model_len === null ? "" : `context ${count(model.max_model_len)} tokens`;
  options.offer(model);
  tools.offer(model.chat?.tools ?? false);
  composer.offer(model.chat);
}

open();
new Status();
learn();
