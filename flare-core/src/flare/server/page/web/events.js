// Server-sent events of a response's body.

/** The data of each event (https://html.spec.whatwg.org/multipage/server-sent-events.html). */
export async function* events(body) {
  let rest = "";
  let data = [];
  for await (const text of pieces(body)) {
    const lines = (rest + text).split(/\r\n|\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
      else if (line === "" && data.length) {
        yield data.join("\n");
        data = [];
      }
    }
  }
}

// Not every browser iterates over streams.
async function* pieces(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
