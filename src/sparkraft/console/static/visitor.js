// Who looks at the console: the role decides what the screens offer, and the server what it answers.

import { el } from "./dom.js";

const ROLES = ["viewer", "reader", "editor"];

export const visitor = { name: null, role: null, acceptsPasswords: false };

export const may = (role) => ROLES.indexOf(visitor.role) >= ROLES.indexOf(role);

export function post(address, document) {
  return fetch(address, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Sparkraft-Console": "1" },
    body: JSON.stringify(document),
  });
}

// Exchange the one-time token of the address for a session, and ask who we are.
export async function arrive() {
  const token = /^#t=([\w-]+)$/.exec(location.hash)?.[1];
  if (token) {
    history.replaceState(null, "", location.pathname + location.search);
    await post("/api/sign-in", { token });
  }
  const response = await fetch("/api/me");
  if (response.ok) Object.assign(visitor, await response.json());
  const signedIn = visitor.name
    ? [visitor.name === visitor.role ? `${visitor.name} ` : `${visitor.name} · ${visitor.role} `, el("button", { type: "button", id: "sign-out" }, "Sign out")]
    : [];
  document.getElementById("visitor").replaceChildren(...signedIn);
  document.getElementById("sign-out")?.addEventListener("click", async () => {
    await post("/api/sign-out", {});
    location.reload();
  });
}

// The screen of a visitor who must sign in first.
export const signIn = {
  kinds: [],
  title: () => "Sign in",
  problem: null,
  draw: () => [
    el("h1", {}, "Sign in"),
    signIn.problem && el("p", { class: "problem", role: "alert" }, signIn.problem),
    visitor.acceptsPasswords
      ? el("form", { class: "sign-in" },
          el("label", {}, "User ", el("input", { name: "user", autocomplete: "username", required: true })),
          el("label", {}, "Password ", el("input", {
            name: "password", type: "password", autocomplete: "current-password", required: true,
          })),
          el("button", { type: "submit" }, "Sign in"))
      : el("p", {}, "The proxy in front of this console named no user that may see it."),
  ],
  onSubmit(event, context) {
    const { user, password } = Object.fromEntries(new FormData(event.target));
    post("/api/sign-in", { user, password }).then(async (response) => {
      if (response.ok) return location.reload();
      signIn.problem = (await response.text()).trim();
      context.redraw();
    });
  },
};
