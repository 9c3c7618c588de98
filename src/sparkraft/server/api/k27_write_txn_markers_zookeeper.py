"""WriteTxnMarkers: v0-2, in ZooKeeper mode. End a transaction in partitions led here. (KIP-98)

Behaviour:
    * As `k27_write_txn_markers`.
    * Coordinators of Kafka 3.9 send v0 with inter.broker.protocol.version below 2.8.
Versions: v1 flexible; v2 transaction version.    Not done: -
"""

from dataclasses import replace

from sparkraft.server.api.k27_write_txn_markers import API as KRAFT_API

API = replace(KRAFT_API, versions=(0, 2))
