"""One file per API key: its behavior, its versions, and what is not done.

`registry` lists the keys that are served and loads their files at first use.
"""
