// Reading /metrics, and what the numbers of two readings say.

/** Values by series name, summed over labels, and the labels of `flare:build_info`. */
export function parse(text) {
  const values = {};
  let version = "";
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = /^([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)$/.exec(line) ?? [];
    if (name === undefined) continue;
    values[name] = (values[name] ?? 0) + Number(value);
    if (name === "flare:build_info") version = /[{,]version="([^"]*)"/.exec(labels)?.[1] ?? "";
  }
  return { values, version };
}

/** What the panel shows of one reading and the one before it. A number that the server did not give is undefined. */
export function figures({ values, version }, before, seconds) {
  const get = (name) => values[`flare:${name}`];
  const drawn = get("generation_tokens_total");
  const earlier = before?.values["flare:generation_tokens_total"];
  return {
    up: get("engine_up") === 1,
    version,
    running: get("num_requests_running"),
    waiting: get("num_requests_waiting"),
    // A server that started again counts from zero.
    speed: earlier === undefined || drawn < earlier ? undefined : (drawn - earlier) / seconds,
    used: get("kv_cache_usage_perc"),
    pages: get("total_pages"),
    prefixes: get("checkpoints"),
    held: get("cached_pages"),
    queried: get("prefix_cache_queries_total"),
    hit: get("prefix_cache_hits_total"),
  };
}
