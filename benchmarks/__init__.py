"""Speed, always as a ratio to a peer or a limit measured in the same run; `./bench` runs it all."""
