"""The versions of requests that Kafka 3.9.2 serves in ZooKeeper mode."""

import re

from sparkraft.protocol.api_keys import ApiKey

_RECORDED = """
0:0-11 1:0-17 2:0-9 3:0-12 4:0-7 5:0-4 6:0-8 7:0-3 8:0-9 9:0-9 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5
15:0-5 16:0-5 17:0-1 18:0-4 19:0-7 20:0-6 21:0-2 22:0-5 23:0-4 24:0-5 25:0-4 26:0-4 27:0-1 28:0-4
29:0-3 30:0-3 31:0-3 32:0-4 33:0-2 34:0-2 35:0-4 36:0-2 37:0-3 38:0-3 39:0-2 40:0-2 41:0-3 42:0-2
43:0-2 44:0-1 45:0-0 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 56:0-3 57:0-1 58:0-0 60:0-1 61:0-0
65:0-0 66:0-1 67:0-0 68:0-0 69:0-0
"""
"""Key, lowest and highest version in ApiVersions, as recorded."""

KAFKA_3_9 = {
    ApiKey(int(key)): range(int(first), int(last) + 1)
    for key, first, last in re.findall(r"(\d+):(\d+)-(\d+)", _RECORDED)
}
"""Key → versions. `differential` compares them with those of a broker."""
