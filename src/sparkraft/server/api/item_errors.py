"""Errors of single items of a request: of the topics to create, of the configs to alter.

One `ItemErrors` per API file describes how its response carries them. It makes `Api.refuse`, and
the handler that refuses denied items and passes on the others.
"""

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.declare import Message
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import denied
from sparkraft.server.api.encoded_array import EncodedArray, encoded_in_pieces
from sparkraft.server.api.registry import Handler, RequestContext
from sparkraft.server.controller.submission import set_error

Request = TypeVar("Request")
Item = TypeVar("Item")
Result = TypeVar("Result")
Response = TypeVar("Response")

Denial = Callable[[RequestContext, Item], KafkaError | None]
"""Why the session may not do what the request asks for an item; None: it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemErrors(Generic[Request, Item, Result, Response]):
    """How the response to `Request` carries an error of each item.

    Attributes:
        items: the request's items.
        result: an item's result, without an error.
        response: the response with these results.
        results: the response's results.
        only: the request with some of its items.
    """

    items: Callable[[Request], list[Item]]
    result: Callable[[Item], Result]
    response: Callable[[Any], Response]
    results: Callable[[Response], list[Result]]
    only: Callable[[Request, list[Item]], Request]

    def refuse(
        self, response_class: type[Message], request: Request, version: int, error: KafkaError
    ) -> Generator[int, None, Response]:
        """`Api.refuse`: the error on each item."""
        results = (set_error(self.result(item), error) for item in self.items(request))
        encoded = yield from encoded_in_pieces(response_class, version, results)
        return self.response(encoded)

    def refused(self, request: Request, error: KafkaError) -> Response:
        """The same for a part of a request."""
        return self.response([set_error(self.result(item), error) for item in self.items(request)])

    def authorized(self, decide: Handler, denial: "Denial[Item]") -> Handler:
        """A handler that refuses the items `denial` objects to, and has `decide` do the others."""

        async def handle(node: Any, context: RequestContext, request: Request) -> Response:
            if context.session.authorizer.allows_all:
                every: Response = await awaited(decide(node, context, request))
                return every
            kept: list[Item] = []
            refused: list[Result] = []
            for item in self.items(request):
                error = denial(context, item)
                if error is None:
                    kept.append(item)
                else:
                    refused.append(set_error(self.result(item), error))
            if not kept and refused:
                return self.response(refused)
            response: Response = await awaited(decide(node, context, self.only(request, kept)))
            self.results(response).extend(refused)
            return response

        return handle


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionErrors:
    """How a response carries an error of each partition of a request's `topics`.

    Attributes:
        partition: the result of a requested partition, with an error code.
        topic: the result of a topic, with its partitions' results.
        response: the response with these topics.
    """

    partition: Callable[[Any, int], Any]
    topic: Callable[[Any, Any], Any]
    response: Callable[[Any], Any]

    def refuse(
        self, response_class: type[Message], request: Any, version: int, error: KafkaError
    ) -> Generator[int, None, Any]:
        """`Api.refuse`: the error on each partition."""
        code = int(error.code)
        topics = EncodedArray(response_class, version, 1)
        for topic in request.topics:
            results = (self.partition(one, code) for one in topic.partitions)
            encoded = yield from encoded_in_pieces(response_class, version, results)
            topics.add(self.topic(topic, encoded))
            yield 1
        return self.response(topics.encoded())


async def awaited(answer: Any) -> Any:
    """The result of a handler of either kind."""
    return await answer if isinstance(answer, Awaitable) else answer


def topic_denial(context: RequestContext, operation: AclOperation, name: str) -> KafkaError | None:
    """TOPIC_AUTHORIZATION_FAILED unless the session may do `operation` on that topic."""
    if context.is_allowed(operation, AclResourceType.TOPIC, name):
        return None
    return denied(AclResourceType.TOPIC)


def check_topic(context: RequestContext, operation: AclOperation, name: str) -> None:
    """As `topic_denial`, raised."""
    if not context.is_allowed(operation, AclResourceType.TOPIC, name):
        raise denied(AclResourceType.TOPIC)


def check_group(context: RequestContext, operation: AclOperation, group_id: str) -> None:
    """Raise GROUP_AUTHORIZATION_FAILED unless the session may do `operation` on that group."""
    if not context.is_allowed(operation, AclResourceType.GROUP, group_id):
        raise denied(AclResourceType.GROUP)
