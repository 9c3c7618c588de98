"""The wire's server side: listeners, connections, dispatch (DESIGN D2)."""
