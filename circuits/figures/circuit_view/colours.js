// Colours of the theme, read from the page's style variables and kept until the theme changes.

let palette = null;

function colours() {
  if (palette === null) {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    palette = {
      positive: read("positive"), neutral: read("neutral"), negative: read("negative"),
      ink: read("ink"), paper: read("paper"), node: read("node"), font: read("font"),
      sequential: [0, 1, 2, 3].map((place) => read(`sequential-${place}`)),
      mixed: new Map(),
    };
  }
  return palette;
}

function forgetColours() {
  palette = null;
}

// How strong an effect looks, from 0 to 1: by its square root, for most edges are far weaker than
// the strongest and would all look alike.
function effectShare(value, limit) {
  return limit > 0 ? Math.sqrt(Math.min(Math.abs(value) / limit, 1)) : 0;
}

// The diverging scale around 0, in 128 steps on either side, so that colours are compared cheaply.
function effectColour(value, limit) {
  const theme = colours();
  const share = effectShare(value, limit);
  const level = Math.round(share * 128) * (value < 0 ? -1 : 1);
  let colour = theme.mixed.get(level);
  if (colour === undefined) {
    colour = mix(theme.neutral, level < 0 ? theme.negative : theme.positive, Math.abs(level) / 128);
    theme.mixed.set(level, colour);
  }
  return colour;
}

function mix(from, to, share) {
  const channel = (text, place) => parseInt(text.slice(1 + 2 * place, 3 + 2 * place), 16);
  const mixed = [0, 1, 2].map((place) => {
    const [start, end] = [channel(from, place), channel(to, place)];
    return Math.round(start + (end - start) * share).toString(16).padStart(2, "0");
  });
  return `#${mixed.join("")}`;
}
