"""The web console: a process of its own that shows a cluster in a browser.

It knows the cluster only through `client`, by the requests that the commands send, and its JSON
documents are those of `--output json`. The pages are hand-written ES modules and one stylesheet in
`static`: no build step makes them, and a page requests nothing from other hosts.

The console listens on loopback and changes nothing. It needs the extra `[console]`.
"""
