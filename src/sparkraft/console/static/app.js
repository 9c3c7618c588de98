// The frame of all screens: navigation by path, the stream of changes, and drawing on each change.

import * as change from "./change.js";
import { el, morph } from "./dom.js";
import { Live } from "./live.js";
import { MomentBar } from "./moment.js";
import { arrive, signIn, visitor } from "./visitor.js";
import * as overview from "./overview.js";
import * as quorum from "./quorum.js";
import * as controller from "./controller.js";
import * as transactions from "./transactions.js";
import * as topics from "./topics.js";
import * as topic from "./topic.js";
import * as messages from "./messages.js";
import * as partition from "./partition.js";
import * as broker from "./broker.js";
import * as groups from "./groups.js";
import * as group from "./group.js";
import * as configs from "./configs.js";
import * as logDirs from "./log-dirs.js";
import * as pipelines from "./pipelines.js";
import * as reassignments from "./reassignments.js";
import * as security from "./security.js";
import * as changes from "./changes.js";

// A screen has `kinds` of events it is drawn from and `draw(context)`; optionally `source(params,
// query)`, the address of a document of its own, `title(params)`, `hasClock` if it shows how long ago
// something was, and `onClick`, `onFocus`, `onKey`, `onInput`, which return whether to draw again. A
// colon marks a parameter of a path. A screen with a `mode` is in the navigation of clusters in that
// mode only.
const SCREENS = [
  { path: "/", label: "Overview", screen: overview },
  { path: "/quorum", label: "Quorum", screen: quorum, mode: "kraft" },
  { path: "/controller", label: "Controller", screen: controller, mode: "zookeeper" },
  { path: "/topics", label: "Topics", screen: topics },
  { path: "/topics/:topic", under: "/topics", screen: topic },
  { path: "/topics/:topic/messages", under: "/topics", screen: messages },
  { path: "/topics/:topic/:partition", under: "/topics", screen: partition },
  { path: "/brokers/:broker", under: "/", screen: broker },
  { path: "/groups", label: "Groups", screen: groups },
  { path: "/group", under: "/groups", screen: group },
  { path: "/configs", under: "/", screen: configs },
  { path: "/log-dirs", label: "Disks", screen: logDirs },
  { path: "/reassignments", label: "Moves", screen: reassignments },
  { path: "/security", label: "Security", screen: security },
  { path: "/transactions", label: "Transactions", screen: transactions },
  { path: "/pipelines", label: "Pipelines", screen: pipelines },
  { path: "/changes", label: "Changes", screen: changes },
];

const REFRESH_MS = 3000;
const REFRESH_MAX_MS = 15_000;
const COST_SHARE = 5;
const SPARE_MS = 500;

await arrive();

const root = document.getElementById("screen");
const status = document.getElementById("live");
const live = new Live((state) => {
  status.textContent = state;
  status.dataset.state = state;
}, visitor.role !== null);
const bar = visitor.role === null ? null : new MomentBar(document.getElementById("moment"), moveTo);
let current = null;
let drawing = 0;

function match({ path }) {
  const names = path.split("/");
  const parts = location.pathname.split("/");
  if (names.length !== parts.length) return null;
  const params = {};
  for (let at = 0; at < names.length; at++) {
    if (names[at].startsWith(":") && parts[at]) params[names[at].slice(1)] = decodeURIComponent(parts[at]);
    else if (names[at] !== parts[at]) return null;
  }
  return params;
}

function route() {
  const found = visitor.role === null ? { path: "", screen: signIn } : SCREENS.find(match) ?? SCREENS[0];
  const params = (found.path && match(found)) || {};
  const query = new URLSearchParams(location.search);
  current?.screen.leave?.();
  const isSame = current?.address === location.pathname + location.search;
  current = {
    entry: found, screen: found.screen, params, query, address: location.pathname + location.search,
    documents: live.newest, data: isSame ? current.data : null, etag: isSame ? current.etag : null, problem: null, fetchedAt: 0, redraw: draw, go,
  };
  document.title = `${found.screen.title?.(params, query) ?? found.label} · sparkraft console`;
  drawNavigation();
  bar?.follow(query.has("as-of") ? Number(query.get("as-of")) : null);
  refresh();
  draw();
}

function drawNavigation() {
  const { entry } = current;
  const mode = live.newest.get("cluster")?.mode ?? entry.mode ?? "kraft";
  const links = SCREENS.filter((one) => one.label && visitor.role !== null && (one.mode ?? mode) === mode).map(({ path, label }) =>
    el("a", { href: path, "data-link": true, "data-key": path, "aria-current": path === (entry.under ?? entry.path) && "page" }, label));
  const old = document.getElementById("screens");
  const fresh = old.cloneNode(false);
  fresh.append(...links);
  morph(old, fresh);
}

// Show the screen as of an offset of the metadata log; null for now.
function moveTo(at) {
  const query = new URLSearchParams(location.search);
  if (at === null) query.delete("as-of");
  else query.set("as-of", at);
  const text = query.toString();
  const address = location.pathname + (text ? `?${text}` : "");
  if (address === location.pathname + location.search) return;
  const before = current;
  history.replaceState(null, "", address);
  route();
  if (before.entry === current.entry) current.data = before.data;
}

// Request the document of the screen; a late response of another screen is dropped. A document that is
// still the same is neither sent nor drawn again.
async function refresh() {
  const shown = current;
  const address = shown.screen.source?.(shown.params, shown.query);
  if (!address || shown.isFetching || change.isApplying() || Date.now() - shown.fetchedAt < REFRESH_MS - SPARE_MS) return;
  shown.isFetching = true;
  const began = Date.now();
  let isNews = true;
  try {
    const response = await fetch(address, { headers: shown.etag ? { "If-None-Match": shown.etag } : {} });
    if (response.status === 304) {
      isNews = shown.problem !== null || Boolean(shown.screen.hasClock);
      shown.problem = null;
    } else if (response.ok) {
      shown.etag = response.headers.get("ETag");
      shown.data = await response.json();
      shown.problem = null;
    } else if (response.status === 401) {
      location.reload();
    } else {
      shown.problem = await response.text();
    }
  } catch {
    shown.problem = "The console does not respond.";
  }
  // What takes long is requested less often.
  shown.isFetching = false;
  shown.fetchedAt = Date.now() + Math.min(REFRESH_MAX_MS, COST_SHARE * (Date.now() - began));
  if (isNews && shown === current) draw();
}

function draw() {
  if (drawing) return;
  drawing = requestAnimationFrame(() => {
    drawing = 0;
    const fresh = el("main", { id: "screen", tabindex: "-1", "data-screen": current.entry.path },
      current.problem && el("p", { class: "problem", role: "alert" }, current.problem),
      current.query.has("as-of") && !current.screen.hasPast && el("p", { class: "note" }, "This screen shows the present: not all of it is in the metadata log."),
      current.screen.draw(current));
    morph(root, fresh);
    current.screen.onDrawn?.(root, current);
  });
}

live.listener = (kind) => {
  if (kind === "cluster") drawNavigation();
  if (current.screen.kinds.includes(kind)) draw();
};

document.addEventListener("visibilitychange", () => {
  if (document.hidden) current.screen.onHidden?.();
  if (!document.hidden) {
    cancelAnimationFrame(drawing);
    drawing = 0;
    refresh();
    draw();
  }
});

// Without TLS a page of another machine has no clipboard: then its reader copies the selected command.
async function copyCommand(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    status.textContent = "copied";
  } catch {
    getSelection().selectAllChildren(button.previousElementSibling);
    status.textContent = "selected";
  }
  setTimeout(() => (status.textContent = status.dataset.state), 1500);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-link]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
    event.preventDefault();
    go(link.getAttribute("href"), link.hasAttribute("data-now"));
    return;
  }
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    copyCommand(copy);
    return;
  }
  if (current.screen.onClick?.(event, current)) draw();
});

document.addEventListener("keydown", (event) => {
  if (current.screen.onKey?.(event, current)) {
    event.preventDefault();
    draw();
  }
});

document.addEventListener("focusin", (event) => {
  if (current.screen.onFocus?.(event, current)) draw();
});

document.addEventListener("submit", (event) => {
  event.preventDefault();
  if (change.submit(event.target, current)) return;
  const href = current.screen.onSubmit?.(event, current);
  if (href) go(href);
});

document.addEventListener("input", (event) => {
  if (current.screen.onInput?.(event, current)) draw();
});

function go(href, isNow = false) {
  // The moment stays while the reader goes from screen to screen.
  const at = new URLSearchParams(location.search).get("as-of");
  if (at !== null && !isNow && !/[?&]as-of=/.test(href)) href += `${href.includes("?") ? "&" : "?"}as-of=${at}`;
  history.pushState(null, "", href);
  route();
  root.focus({ preventScroll: true });
  scrollTo(0, 0);
}

setInterval(() => document.hidden || refresh(), REFRESH_MS);
window.addEventListener("popstate", route);
route();
