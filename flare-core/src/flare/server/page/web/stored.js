// What outlives a reload of the tab, and nothing else: sessionStorage.

let told = false;

/** The value stored under `name`, or `otherwise`. */
export function load(name, otherwise) {
  try {
    return JSON.parse(sessionStorage.getItem(`flare.${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** Store `value`. Without room for it (images are large) everything goes on in memory, and `full` is told once. */
export function save(name, value, full = () => {}) {
  try {
    if (value === null || value === "") sessionStorage.removeItem(`flare.${name}`);
    else sessionStorage.setItem(`flare.${name}`, JSON.stringify(value));
  } catch {
    if (!told) full();
    told = true;
  }
}
