"""The transaction coordinator's core: the transactional ids of one partition.

Start at `shard.TransactionShard`. `states.py` has the states and their transitions, `metadata.py`
what is known of one id and how each transition changes it, `producer_ids.py` and `completion.py`
the rules of InitProducerId and EndTxn, `listing.py` descriptions and filters, `records.py` the
records of `__transaction_state`.
"""
