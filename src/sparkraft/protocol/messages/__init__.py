"""The declarations of all messages; import the module of the key you need.

`kNN_name` holds request and response of API key NN. The records of the metadata log, the
coordinators and the quorum have modules of their own. Nothing is imported here: a node loads
the messages of a key when it first needs them.
"""
