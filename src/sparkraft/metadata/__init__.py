"""The cluster metadata of every node: records in, one immutable `ClusterImage` out.

Entry points: `image.ClusterImage`, `apply.apply`, `snapshot.records_of`, `features`, `configs`.

Invariant: this package makes no decisions; `sparkraft.controller` does.
"""
