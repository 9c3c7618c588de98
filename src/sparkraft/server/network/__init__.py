"""Listeners, connections and dispatch (docs/decisions/0002-one-event-loop.md)."""
