"""The way out of ZooKeeper (KIP-866): the conditions and the records of a migration.

    conditions  which conditions of a migration a cluster meets
    records     a cluster's znodes as records of the metadata log
    progress    how far a migration is, as its znodes show it
    reading     reads the znodes, over a session
    tree        the znodes that were read

Source: Kafka 3.9's `ZkMigrationClient` and `KRaftMigrationDriver`. Pure, except `reading`.
"""
