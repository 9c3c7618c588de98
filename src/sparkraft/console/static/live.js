// One stream of changes per page, closed while the page is hidden: browsers allow six connections to
// a host, so hidden tabs must not hold any.

export class Live {
  constructor(onState, isAllowed) {
    this.newest = new Map();
    this.onState = onState;
    this.listener = () => {};
    this.source = null;
    if (!isAllowed) return onState("signed out");
    document.addEventListener("visibilitychange", () => this.follow());
    this.follow();
  }

  follow() {
    if (document.hidden) this.close("paused");
    else if (!this.source) this.open();
  }

  open() {
    this.onState("connecting");
    this.source = new EventSource("/events");
    this.source.onopen = () => this.onState("live");
    this.source.onerror = () => this.failed();
    for (const kind of ["cluster", "quorum", "controller", "problem"]) {
      this.source.addEventListener(kind, (event) => {
        this.newest.set(kind, JSON.parse(event.data));
        this.listener(kind);
      });
    }
  }

  // The browser connects again by itself, except after a response that is not a stream.
  failed() {
    this.onState("reconnecting");
    if (this.source.readyState === EventSource.CLOSED) {
      this.close("reconnecting");
      setTimeout(() => this.follow(), 2000);
    }
  }

  close(state) {
    this.source?.close();
    this.source = null;
    this.onState(state);
  }
}
