"""A controller's migration of a cluster from ZooKeeper (KIP-866)."""
