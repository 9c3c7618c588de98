"""The addresses of the servers of a simulated ensemble."""

SERVERS = ("zk1", "zk2", "zk3")
PORT = 2181
CONNECT = ",".join(f"{name}:{PORT}" for name in SERVERS)
