// Staying at the end of what is written, unless somebody looks at something else.

const NEAR = 40; // pixels

export function follow(place) {
  let following = true;
  let last = 0;
  place.addEventListener("scroll", () => {
    // Growing moves the end away without anybody scrolling: only upwards is away from it.
    if (place.scrollTop < last - 1) following = false;
    if (place.scrollHeight - place.scrollTop - place.clientHeight < NEAR) following = true;
    last = place.scrollTop;
  }, { passive: true });
  const end = () => {
    following = true;
    place.scrollTop = place.scrollHeight;
  };
  return { end, keep: () => following && end() };
}
