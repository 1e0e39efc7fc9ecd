// What one request brings: text, reasoning, calls, counts and times, as plain data of a node.

/** The fields of an answer that has not begun. */
export function begun(now) {
  return {
    state: "waiting", // waiting, streaming, done, stopped, failed
    content: "",
    reasoning: "",
    calls: [],
    broken: [],
    finish: null,
    error: null,
    usage: null,
    times: { sent: now, first: null, last: null, tokensAtFirst: 0 },
  };
}

/** Take in a chunk of the stream that arrived at `now` (milliseconds). */
export function take(answer, chunk, now) {
  const [choice] = chunk.choices;
  if (chunk.usage) answer.usage = figuresOf(chunk.usage, choice === undefined);
  if (choice === undefined) return;
  const { content, reasoning_content: reasoning, tool_calls: calls } = choice.delta;
  if (content || reasoning || calls) {
    answer.state = "streaming";
    answer.times.last = now;
    if (answer.times.first === null) {
      answer.times.first = now;
      answer.times.tokensAtFirst = chunk.usage?.completion_tokens ?? 1;
    }
  }
  answer.content += content ?? "";
  answer.reasoning += reasoning ?? "";
  for (const call of calls ?? []) {
    const known = (answer.calls[call.index] ??= { id: call.id, name: call.function.name, arguments: "" });
    known.arguments += call.function.arguments ?? "";
  }
  answer.broken.push(...(choice.broken_tool_calls ?? []));
  answer.finish = choice.finish_reason ?? answer.finish;
}

function figuresOf(usage, complete) {
  return {
    prompt: usage.prompt_tokens,
    output: usage.completion_tokens,
    reasoning: usage.completion_tokens_details?.reasoning_tokens ?? 0,
    // Known when the output ended; until then the server says 0.
    cached: complete ? (usage.prompt_tokens_details?.cached_tokens ?? 0) : null,
  };
}

const SHORTEST = 0.05; // seconds: a burst says nothing about speed

/** Tokens per second behind the first ones, or null for too few of them. */
export function speed({ usage, times }) {
  const taken = (times.last - times.first) / 1000;
  const tokens = (usage?.output ?? 0) - times.tokensAtFirst;
  return times.first !== null && tokens > 0 && taken >= SHORTEST ? tokens / taken : null;
}

/** Calls that can be sent back: their arguments are whole. */
export function completeCalls(answer) {
  return answer.calls.filter((call) => {
    try {
      const value = JSON.parse(call.arguments || "{}");
      return value !== null && typeof value === "object" && !Array.isArray(value);
    } catch {
      return false;
    }
  });
}

/** Whether there is anything that the next prompt can hold. */
export const isEmpty = (answer) =>
  !answer.content && !answer.reasoning && completeCalls(answer).length === 0;
