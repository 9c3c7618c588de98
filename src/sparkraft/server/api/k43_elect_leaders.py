"""ElectLeaders: v0-2. Preferred or unclean elections, now. (KIP-183, KIP-460)

Behaviour:
    * No partitions given: all of them, and those that need no election are left out of the answer.
    * Nobody to elect: PREFERRED_LEADER_NOT_AVAILABLE or ELIGIBLE_LEADERS_NOT_AVAILABLE.
Versions: v1 unclean; v2 flexible.    Not done: -
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submitting import submitted

API = Api(
    key=ApiKey.ELECT_LEADERS,
    handle=submitted("elect_leaders"),
    forward=True,
    controller=True,
)
