"""The `sparkraft` command: Kafka's tools under their own names, and commands of ours.

`main` picks the module of a subcommand and loads only that one, so `server-start` starts fast.
Each module has `main(argv) -> exit code`. Exit codes: 0 done, 1 it failed or was refused, 2 the
command line makes no sense.
"""
