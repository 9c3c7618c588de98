"""What every node knows of the cluster: records in, one immutable `ClusterImage` out (DESIGN D6).

Entry points: `image.ClusterImage`, `apply.apply`, `snapshot.records_of`, `features`, `configs`.

Invariant: nothing here decides anything; decisions are `sparkraft.controller`'s.
"""
