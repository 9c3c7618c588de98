"""The cluster as of earlier offsets of the metadata log, for commands and the console.

state     the cluster's metadata, replayed record by record
changes   the change that a record makes, in words
log       requests of images and log pages from a node
"""
