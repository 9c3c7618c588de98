"""The cluster as of earlier offsets of the metadata log, for commands and the console.

state     the cluster's metadata, replayed record by record
changes   the change that a record makes, in words
decoding  the records of a log
settings  configs, access rights, users and quotas of a state
moves     reassignments and their throttles of a state
log       requests of images and log pages from a node
"""
