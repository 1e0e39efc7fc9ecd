// Asking for an API key, when the server wants one.

import { find } from "./dom.js";
import { ServerError, useKey } from "./server.js";

let asking = null;

/** Ask for a key because of `error`; resolves when there is one to try, or with false when there is none. */
function askForKey(error) {
  const dialog = find("#ask-key");
  find("#key-reason").textContent = `The server says: ${error.message}`;
  asking ??= new Promise((resolve) => {
    const field = dialog.querySelector("input");
    field.value = "";
    dialog.returnValue = "";
    dialog.addEventListener("close", () => {
      asking = null;
      const given = field.value.trim();
      if (given) useKey(given);
      resolve(given !== "");
    }, { once: true });
    dialog.addEventListener("cancel", () => (field.value = ""), { once: true });
    dialog.showModal();
  });
  return asking;
}

/** What `work` gives; it is done again with another key as long as the server wants one and a person gives one. */
export async function withKey(work) {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ServerError) || error.status !== 401 || !(await askForKey(error))) throw error;
    }
  }
}
