"""One file per API key: what it answers, in which versions, and what is not done.

`registry` says which keys are served and loads their files at first use.
"""
