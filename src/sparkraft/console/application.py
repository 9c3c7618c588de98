"""The console's routes, each with the role it takes; those of `sign_in` are for visitors.

/                 and the other screens: one page, whose modules draw the screen of its path
/static/NAME      modules, stylesheet
/api/cluster      the document of `explain cluster --output json`
/api/quorum       the document of `explain quorum --output json`, and its lines of text
/api/controller   in ZooKeeper mode: that of `explain controller --output json`, and its lines
/api/NAME         a document of `views`: topics, topic, partition, broker, groups, group
/api/configs      the configs of a topic, a broker, all brokers or a group
/api/log-dirs     the log directories of all brokers
/api/reassignments  what is being reassigned, its progress, and throttles
/api/security     access control entries, users and quotas
/api/who-may      who may do an operation to a resource
/api/pipelines    the newest batches of Spark pipelines
/api/transactions   transactions of all coordinators
/api/producers    the producers that a partition remembers
/api/timeline     how far the metadata log is indexed
/api/moment       a change of the metadata log by number, time or offset, or by a typed text
/api/past         the document of `explain cluster --at-offset`; topics, topic, partition, broker,
                  configs, reassignments, security and who-may take `at`, too
/api/changes      the last changes up to an offset, the differences from now, and with `from` and
                  `to` those of two typed moments
/api/messages     records of a topic, a JSON document per line while they are read
/api/export       the same records as `console-consumer --output json` prints them, as a file
/api/send         POST: send a record; an audit line names the visitor
/api/reset-plan   POST: the changes that a reset of a group would make
/api/reset        POST: commit the offsets of such a plan; an audit line names the visitor
/api/change-plan  POST: the plan of a change of `changes`, validated by the cluster
/api/change       POST: carry such a change out; an audit line names the visitor
/events           Server-Sent Events: the documents of the cluster and its quorum when they change
"""

from __future__ import annotations

import asyncio
import gzip
import re
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.errors import PlanError, sentence_of
from sparkraft.console.assets import (
    accepts_gzip,
    asset_response,
    etag_of,
    has_current,
    load_assets,
)
from sparkraft.console.changes import parse_change
from sparkraft.console.guard import RequestGuard
from sparkraft.console.json_text import json_text
from sparkraft.console.messages import (
    EXPORT_RECORDS_MAX,
    RECORDS_MAX,
    TooManyScansError,
    exported_lines,
    parse_query,
    shown_lines,
)
from sparkraft.console.parameters import Parameters
from sparkraft.console.releasing import ReleasingResponse
from sparkraft.console.reset import parse_offsets, parse_reset
from sparkraft.console.roles import Role
from sparkraft.console.send import parse_record
from sparkraft.console.sign_in import json_body
from sparkraft.console.stream import TooManyStreamsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from starlette.requests import Request
    from starlette.routing import Route
    from starlette.types import ASGIApp

    from sparkraft.client.reading import ConsumedRecord
    from sparkraft.console.changes import ClusterChanger
    from sparkraft.console.messages import MessageQuery, MessageReader
    from sparkraft.console.more_views import MoreViews
    from sparkraft.console.past_views import PastViews
    from sparkraft.console.record_text import RecordText
    from sparkraft.console.reset import GroupResetter
    from sparkraft.console.send import RecordSender
    from sparkraft.console.sign_in import SignIn
    from sparkraft.console.stream import EventHub
    from sparkraft.console.views import ClusterViews
    from sparkraft.console.watch import ClusterWatch

    Items = AsyncIterator[ConsumedRecord | dict[str, Any]]
    Lines = Callable[[Items, MessageQuery, RecordText], AsyncIterator[bytes]]
    Make = Callable[[Parameters], Awaitable[dict[str, Any]]]

SCREENS = (
    "/",
    "/quorum",
    "/controller",
    "/topics",
    "/topics/:topic",
    "/topics/:topic/messages",
    "/topics/:topic/:partition",
    "/brokers/:broker",
    "/groups",
    "/group",
    "/configs",
    "/log-dirs",
    "/reassignments",
    "/security",
    "/pipelines",
    "/transactions",
    "/changes",
)
"""Paths that a page is served for, with a colon before a parameter; `static/app.js` draws them.

A group is a parameter of the query, because its id may be any text, `..` included.
"""

_MS_MAX = (1 << 63) - 1

GZIP_BYTES_MIN = 500

GZIP_IN_THREAD_BYTES_MIN = 64 << 10
"""From here on compression takes milliseconds, and runs outside the event loop."""


_NOT_FOUND = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


_UNCERTAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""Errors after which the cluster may have done what was requested."""


class Console:
    """Answers requests from what the watch and the hub know."""

    def __init__(  # noqa: PLR0913 (made in one place)
        self,
        watch: ClusterWatch,
        views: ClusterViews,
        messages: MessageReader,
        hub: EventHub,
        sign_in: SignIn,
        sender: RecordSender,
        *,
        past: PastViews,
        resetter: GroupResetter,
        changer: ClusterChanger,
        more: MoreViews,
    ) -> None:
        self._watch = watch
        self._views = views
        self._messages = messages
        self._hub = hub
        self._sign_in = sign_in
        self._sender = sender
        self._past = past
        self._resetter = resetter
        self._changer = changer
        self._more = more
        self._assets = load_assets()

    def application(self, *, hosts: frozenset[str]) -> ASGIApp:
        """The ASGI application, reached as one of `hosts`."""
        return RequestGuard(Starlette(routes=self.routes()), hosts=hosts)

    def routes(self) -> list[Route]:
        """All routes. Pages and modules hold nothing of the cluster, so everyone gets them."""
        route = self._sign_in.route
        return [
            *(route(re.sub(r":(\w+)", r"{\1}", path), self.page, None) for path in SCREENS),
            route("/static/{name}", self.static, None),
            *self._sign_in.routes(),
            route("/api/cluster", self.cluster, Role.VIEWER),
            route("/api/quorum", self.quorum, Role.VIEWER),
            route("/api/controller", self.controller, Role.VIEWER),
            *(
                route(f"/api/{name}", _responding(make), Role.VIEWER)
                for name, make in self._documents()
            ),
            route("/events", self.events, Role.VIEWER),
            route("/api/messages", self.messages, Role.READER),
            route("/api/export", self.export, Role.READER),
            route("/api/send", self.send, Role.EDITOR, method="POST"),
            route("/api/reset-plan", self.reset_plan, Role.EDITOR, method="POST"),
            route("/api/reset", self.reset, Role.EDITOR, method="POST"),
            route("/api/change-plan", self.change_plan, Role.EDITOR, method="POST"),
            route("/api/change", self.change, Role.EDITOR, method="POST"),
        ]

    async def page(self, request: Request) -> Response:
        return asset_response(request, self._assets["index.html"])

    async def static(self, request: Request) -> Response:
        asset = self._assets.get(request.path_params["name"])
        if asset is None:
            return PlainTextResponse("no such file\n", 404)
        return asset_response(request, asset)

    async def cluster(self, request: Request) -> Response:
        return await json_response(request, await self._watch.cluster())

    async def quorum(self, request: Request) -> Response:
        return await self._elections(request, self._watch.quorum)

    async def controller(self, request: Request) -> Response:
        return await self._elections(request, self._watch.controller)

    async def _elections(self, request: Request, make: Callable[[], Awaitable[Any]]) -> Response:
        try:
            return await json_response(request, await make())
        except KafkaError as error:
            return PlainTextResponse(f"{sentence_of(error)}\n", 502)

    def _documents(self) -> Iterator[tuple[str, Make]]:
        """The documents of single things, made from the parameters of the request."""
        views, past = self._views, self._past
        yield "timeline", lambda _: past.timeline()
        yield (
            "moment",
            lambda query: (
                past.moment_named(query.text("at"))
                if "at" in query
                else past.moment(
                    change=query.number("change", -1),
                    at_ms=query.number("ms", -1, high=_MS_MAX),
                    at_offset=query.number("offset", -1),
                )
            ),
        )
        yield "past", lambda query: past.cluster(query.at_offset)
        yield (
            "changes",
            lambda query: past.changes(
                query.at_offset, first=query.text("from", ""), last=query.text("to", "")
            ),
        )
        yield (
            "topics",
            lambda query: past.topics(query.at_offset) if query.at_offset >= 0 else views.topics(),
        )
        yield (
            "topic",
            lambda query: (
                past.topic(query.text("topic"), query.at_offset)
                if query.at_offset >= 0
                else views.topic(query.text("topic"))
            ),
        )
        yield (
            "partition",
            lambda query: views.partition(
                query.text("topic"), query.number("partition"), at_offset=query.at_offset
            ),
        )
        yield (
            "broker",
            lambda query: views.broker(query.number("broker"), at_offset=query.at_offset),
        )
        yield "groups", lambda query: views.groups(query.text("name", ""))
        yield "group", lambda query: views.group(query.text("group"))
        yield from self._more_documents()

    def _more_documents(self) -> Iterator[tuple[str, Make]]:
        more, past = self._more, self._past
        yield "log-dirs", lambda _: more.replicas.log_dirs()
        yield (
            "reassignments",
            lambda query: (
                past.reassignments(query.at_offset)
                if query.at_offset >= 0
                else more.replicas.reassignments()
            ),
        )
        yield (
            "security",
            lambda query: (
                past.settings.security(query.at_offset)
                if query.at_offset >= 0
                else more.security.security()
            ),
        )

        def who_may(query: Parameters) -> Awaitable[dict[str, Any]]:
            question = query.text("operation"), query.text("type"), query.text("name")
            if query.at_offset >= 0:
                return past.settings.who_may(*question, query.at_offset)
            return more.security.who_may(*question)

        yield "who-may", who_may
        yield "transactions", lambda _: more.transactions.transactions()
        yield (
            "producers",
            lambda query: more.transactions.producers(
                query.text("topic"), query.number("partition")
            ),
        )
        yield "pipelines", lambda query: more.pipelines.pipelines(query.text("topic"))

        def configs(query: Parameters) -> Awaitable[dict[str, Any]]:
            resource = query.text("resource"), query.text("name")
            if query.at_offset >= 0:
                return past.settings.configs(*resource, query.at_offset)
            return more.configs.configs(*resource)

        yield "configs", configs

    async def messages(self, request: Request) -> Response:
        return await self._scanned(request, RECORDS_MAX, shown_lines, "application/x-ndjson")

    async def export(self, request: Request) -> Response:
        response = await self._scanned(
            request, EXPORT_RECORDS_MAX, exported_lines, "application/jsonl"
        )
        if response.status_code == HTTPStatus.OK:
            name = f"{request.query_params['topic']}.jsonl"
            response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
        return response

    async def send(self, request: Request) -> Response:
        try:
            record = parse_record(await json_body(request))
            async with self._attempt(request, f"send a record to topic {record.topic!r}"):
                sent = await self._sender.send(record)
        except (KeyError, ValueError, TypeError) as error:
            return PlainTextResponse(f"bad record: {error}\n", 400)
        except KafkaError as error:
            return _refusal(error)
        place = f"{sent['topic']}-{sent['partition']}@{sent['offset']}"
        self._on_change(request, f"sent a record: {place}")
        return await json_response(request, sent)

    async def reset_plan(self, request: Request) -> Response:
        async def plan() -> Response:
            wish = parse_reset(await json_body(request))
            return await json_response(request, await self._resetter.plan(wish))

        return await _changing(plan)

    async def reset(self, request: Request) -> Response:
        async def apply() -> Response:
            group, offsets = parse_offsets(await json_body(request))
            what = f"reset {len(offsets)} offsets of group {group!r}"
            async with self._attempt(request, what):
                done = await self._resetter.apply(group, offsets)
            self._on_change(request, what)
            return await json_response(request, done)

        return await _changing(apply)

    async def change_plan(self, request: Request) -> Response:
        """A plan, or the problem with it: a page shows both, so neither is an error."""
        try:
            plan = await self._changer.plan(parse_change(await json_body(request)))
        except (KeyError, ValueError, TypeError, PlanError, KafkaError) as error:
            return await json_response(request, {"problem": _problem_of(error)})
        return await json_response(request, {"problem": None, **plan})

    async def change(self, request: Request) -> Response:
        async def apply() -> Response:
            change = parse_change(await json_body(request))
            async with self._attempt(request, change.wish):
                done = await self._changer.apply(change)
            self._on_change(request, done)
            return await json_response(request, {"done": done})

        return await _changing(apply)

    @asynccontextmanager
    async def _attempt(self, request: Request, what: str) -> AsyncIterator[None]:
        """Audit also a change that fails, because a part of it or all of it may be done."""
        try:
            yield
        except BaseException as error:
            self._on_change(request, f"failed to {what}: {_reason_of(error)}")
            raise

    def _on_change(self, request: Request, what: str) -> None:
        self._sign_in.audit(request, what)
        self._views.forget()
        self._more.forget()

    async def _scanned(
        self, request: Request, count_max: int, lines: Lines, media_type: str
    ) -> Response:
        try:
            query = parse_query(request.query_params, count_max=count_max)
            scan = await self._messages.prepare(query)
        except TooManyScansError:
            return PlainTextResponse("too many pages read messages\n", 503)
        except (KeyError, ValueError) as error:
            return PlainTextResponse(f"bad parameter: {error}\n", 400)
        except KafkaError as error:
            return _refusal(error)
        body = lines(self._messages.run(scan), query, self._messages.text)
        release = partial(self._messages.release, scan)
        return ReleasingResponse(body, media_type=media_type, release=release)

    async def events(self, _request: Request) -> Response:
        try:
            stream = self._hub.open()
        except TooManyStreamsError:
            return PlainTextResponse("too many pages are open\n", 503)
        release = partial(self._hub.discard, stream)
        return ReleasingResponse(stream.encoded(), media_type="text/event-stream", release=release)


async def _changing(work: Callable[[], Awaitable[Response]]) -> Response:
    """Do one step of a change or a reset; the reason as text if it is not possible."""
    try:
        return await work()
    except (KeyError, ValueError, TypeError, PlanError) as error:
        return PlainTextResponse(f"{_problem_of(error)}\n", 400)
    except KafkaError as error:
        return _refusal(error)


def _problem_of(error: Exception) -> str:
    """The reason why a change is not possible, for its editor."""
    if isinstance(error, KafkaError):
        return sentence_of(error)
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _reason_of(error: BaseException) -> str:
    """The reason of a failure, for the audit line."""
    if isinstance(error, KafkaError):
        doubt = "; it may be done nevertheless" if error.code in _UNCERTAIN else ""
        return sentence_of(error) + doubt
    return str(error) if isinstance(error, PlanError) else type(error).__name__


def _refusal(error: KafkaError) -> Response:
    status = 404 if error.code in _NOT_FOUND else 502
    return PlainTextResponse(f"{sentence_of(error)}\n", status)


def _responding(make: Make) -> Callable[[Request], Awaitable[Response]]:
    """A route that returns a document, or the cluster's error as text."""

    async def respond(request: Request) -> Response:
        try:
            document = await make(Parameters(request.query_params))
        except ValueError as error:
            return PlainTextResponse(f"bad parameter: {error}\n", 400)
        except KafkaError as error:
            return _refusal(error)
        return await json_response(request, document)

    return respond


async def json_response(request: Request, document: Any) -> Response:
    """Return a document as JSON, compressed if it is large, or 304 if the page has it."""
    body = json_text(document).encode()
    etag = etag_of(body)
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding", "ETag": etag}
    if has_current(request, etag):
        return Response(status_code=304, headers=headers)
    if len(body) >= GZIP_BYTES_MIN and accepts_gzip(request):
        headers["Content-Encoding"] = "gzip"
        if len(body) >= GZIP_IN_THREAD_BYTES_MIN:
            body = await asyncio.to_thread(gzip.compress, body, 5)
        else:
            body = gzip.compress(body, 5)
    return Response(body, media_type="application/json", headers=headers)
