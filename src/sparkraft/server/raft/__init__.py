"""The shell around the raft core: its driver, its peers' connections, its wire form.

Read `driver` first: `RaftDriver` is what the rest of the server uses.
"""
