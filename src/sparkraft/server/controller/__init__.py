"""The shell around the controller core: its driver, its services, metadata snapshots."""
