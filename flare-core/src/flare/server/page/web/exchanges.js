// Requests in flight, one per conversation at most.

import { begun, take } from "./answer.js";
import { withKey } from "./keys.js";
import { ServerError, chat } from "./server.js";

export class Exchanges {
  /** `update(conversation, answer)` after every piece, `ended(conversation, answer)` once. */
  constructor(update, ended) {
    this.update = update;
    this.ended = ended;
    this.running = new Map();
  }

  /** The answer that `conversation` waits for, or undefined. */
  of(conversation) {
    return this.running.get(conversation.id)?.answer;
  }

  /** End the request of `conversation`; what came of it stays. */
  stop(conversation) {
    this.running.get(conversation.id)?.controller.abort();
  }

  /** Send `body` and fill `answer`. */
  async start(conversation, answer, body) {
    const controller = new AbortController();
    this.running.set(conversation.id, { answer, controller });
    const asked = { ...body, stream_options: { include_usage: true, continuous_usage_stats: true } };
    try {
      await withKey(async () => {
        Object.assign(answer, begun(performance.now()));
        for await (const chunk of chat(asked, controller.signal)) {
          take(answer, chunk, performance.now());
          this.update(conversation, answer);
        }
      });
      answer.state = "done";
    } catch (error) {
      answer.state = error.name === "AbortError" ? "stopped" : "failed";
      if (answer.state === "failed") answer.error = error.message;
      if (!(error instanceof ServerError) && answer.state === "failed") console.error(error);
    } finally {
      this.running.delete(conversation.id);
    }
    this.ended(conversation, answer);
  }
}
