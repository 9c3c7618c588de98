// The frame of all screens: navigation by path, the stream of changes, and drawing on each change.

import { el, morph } from "./dom.js";
import { Live } from "./live.js";
import * as overview from "./overview.js";
import * as quorum from "./quorum.js";

// Path → screen. A screen has a title, `kinds` of events it is drawn from, and `draw(documents)`;
// optionally `onClick(event)` and `onKey(event)`, which return whether to draw again.
const SCREENS = [
  { path: "/", label: "Overview", screen: overview },
  { path: "/quorum", label: "Quorum", screen: quorum },
];

const root = document.getElementById("screen");
const status = document.getElementById("live");
const live = new Live((state) => {
  status.textContent = state;
  status.dataset.state = state;
});
let current = null;
let isDrawing = false;

function route() {
  current = SCREENS.find(({ path }) => path === location.pathname) ?? SCREENS[0];
  document.title = `${current.label} · sparkraft console`;
  document.getElementById("screens").replaceChildren(
    ...SCREENS.map(({ path, label }) =>
      el("a", { href: path, "data-link": true, "aria-current": path === current.path && "page" }, label)));
  draw();
}

function draw() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    const fresh = el("main", { id: "screen", tabindex: "-1", "data-screen": current.path }, current.screen.draw(live.newest));
    morph(root, fresh);
    current.screen.onDrawn?.(root);
  });
}

// A page whose animation frames are held back would stay empty: it is drawn once without one.
document.addEventListener("visibilitychange", () => {
  isDrawing = false;
  draw();
});

live.listener = (kind) => {
  if (current.screen.kinds.includes(kind)) draw();
};

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-link]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
    event.preventDefault();
    go(link.getAttribute("href"));
    return;
  }
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    navigator.clipboard?.writeText(copy.dataset.copy).then(() => {
      status.textContent = "copied";
      setTimeout(() => (status.textContent = status.dataset.state), 1500);
    });
    return;
  }
  if (current.screen.onClick?.(event)) draw();
});

document.addEventListener("keydown", (event) => {
  if (current.screen.onKey?.(event)) {
    event.preventDefault();
    draw();
  }
});

document.addEventListener("focusin", (event) => {
  if (current.screen.onFocus?.(event)) draw();
});

function go(href) {
  history.pushState(null, "", href);
  route();
  root.focus({ preventScroll: true });
  scrollTo(0, 0);
}

window.addEventListener("popstate", route);
route();
