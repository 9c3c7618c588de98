"""Shared code of the API files of groups."""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.group.decision import Peer

if TYPE_CHECKING:
    from sparkraft.server.api.registry import RequestContext


def peer_of(context: "RequestContext") -> Peer:
    """The sender of a request."""
    return Peer(
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        version=context.api_version,
    )


def check_group_id(group_id: str) -> None:
    """Raise KafkaError for the empty group id, which only offset commits may use."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
