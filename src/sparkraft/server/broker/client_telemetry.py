"""Metrics that clients push: subscriptions, intervals and latest values (KIP-714).

    GetTelemetrySubscriptions → instance with its subscription → PushTelemetry every interval
    → checked here → decompressed and read in a thread → latest values → /metrics

The errors and their order are those of Kafka's ClientMetricsManager. An instance is forgotten when
its connection closes, or when it was silent for a minute and three intervals.

Clients choose names, labels and ids, so everything is bounded: instances, series of each, lengths.
Points that do not fit are counted (`dropped`) and left out.
"""

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.loop_work import LoopBound
from sparkraft.metadata.client_subscriptions import (
    ALL_METRICS,
    INTERVAL_MS_DEFAULT,
    Subscription,
    subscription_of,
)
from sparkraft.metadata.image import ResourceType
from sparkraft.records.compression import Codec, InflatedError, decompress
from sparkraft.server.broker.otlp_points import Point, read_points

if TYPE_CHECKING:
    from sparkraft.base.env import Clock, Entropy
    from sparkraft.metadata.image import ClusterImage

INSTANCES_MAX = 16_384
"""Kafka's size of the cache; the instance that was silent longest makes room."""

SERIES_MAX = 500
"""Series of one instance: Kafka's producer has a hundred, and three for each node and topic."""

POINTS_MAX: LoopBound = 5_000
"""Points of one push that are read; those that fit are taken in one piece."""

TEXT_MAX = 200
"""Characters of a name, label or value."""

SILENT_MS_MIN = 60_000
SILENT_INTERVALS = 3

PREFIX = "org.apache.kafka."
"""Names of KIP-714's metrics; others are dropped."""

COMPRESSION_TYPES = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""In Kafka's order of preference."""

_RESERVED = frozenset({Uuid.ZERO, Uuid(bytes(15) + b"\1")})

_MAY_ASK_AGAIN = frozenset(
    {ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)
"""Errors after which a client needs its subscription before the interval is over."""

ClientOf = Callable[[Uuid], Mapping[str, str]]
"""The values that subscriptions match, of the client with that instance id."""

Key = tuple[str, tuple[tuple[str, str], ...]]
"""Name and attributes of a series."""


class Payload(NamedTuple):
    """The points of a push, and how many have names, labels or values that are not kept."""

    points: list[Point]
    dropped: int = 0


class Series:
    """The latest value of a series, or its sum."""

    __slots__ = ("is_total", "value")

    def __init__(self) -> None:
        self.is_total = False
        self.value = 0.0

    def take(self, point: Point) -> None:
        """Continue with a point that was pushed now."""
        self.is_total = point.is_total
        self.value = self.value + point.value if point.is_delta else point.value


class Instance:
    """One client; its times are monotonic ms.

    Attributes:
        client: the values that subscriptions match.
        subscription_id: of what it shall push.
        metrics: prefixes of names, sorted.
        interval_ms: between two pushes.
        version: of the subscriptions.
        series: values of its pushes.
    """

    def __init__(
        self,
        instance_id: Uuid,
        client: Mapping[str, str],
        subscriptions: Iterable[Subscription],
        version: int,
    ) -> None:
        self.id = instance_id
        self.version = version
        self.client = client
        self.series: dict[Key, Series] = {}
        self.last_used_ms = 0
        self._got_ms: int | None = None
        self._pushed_ms: int | None = None
        self._is_terminating = False
        self._last_error = ErrorCode.NONE
        matching = [each for each in subscriptions if each.matches(client)]
        metrics = {name for each in matching for name in each.metrics}
        self.metrics = [ALL_METRICS] if ALL_METRICS in metrics else sorted(metrics)
        self.interval_ms = min([INTERVAL_MS_DEFAULT, *(each.interval_ms for each in matching)])
        self.subscription_id = _subscription_id(self.metrics, self.interval_ms, instance_id)

    @property
    def silent_ms_max(self) -> int:
        """Silent for longer, it is forgotten."""
        return max(SILENT_MS_MIN, SILENT_INTERVALS * self.interval_ms)

    def used(self, now_ms: int) -> None:
        """It sent a request."""
        self.last_used_ms = now_ms

    def resubscribed(self, before: "Instance") -> None:
        """Keep the values of an instance whose subscriptions have changed."""
        self.series = before.series

    def check_get(self, now_ms: int) -> None:
        """Refuse to be asked again before the interval is over, unless after an error.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED.
        """
        times = [at for at in (self._got_ms, self._pushed_ms) if at is not None]
        if not times or now_ms - max(times) >= self.interval_ms:
            self._got_ms = now_ms
        elif self._last_error not in _MAY_ASK_AGAIN:
            raise _throttled()
        self._last_error = ErrorCode.NONE

    def check_push(self, request: Any, bytes_max: int, now_ms: int) -> None:
        """Check a push.

        Raises:
            KafkaError: INVALID_REQUEST after the last push of a client that ends,
                THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE,
                TELEMETRY_TOO_LARGE.
        """
        try:
            self._check_push(request, bytes_max, now_ms)
        except KafkaError as error:
            self._last_error = error.code
            raise
        finally:
            self._is_terminating = bool(request.terminating)

    def _check_push(self, request: Any, bytes_max: int, now_ms: int) -> None:
        if self._is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client has announced its last push")
        if not self._may_push(now_ms) and not request.terminating:
            raise _throttled()
        if request.subscription_id != self.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if not Codec.NONE <= request.compression_type <= Codec.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > bytes_max:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"telemetry.max.bytes is {bytes_max}")

    def _may_push(self, now_ms: int) -> bool:
        """Whether a push is due; the first after a subscription comes early, because of jitter."""
        got, pushed = self._got_ms, self._pushed_ms
        first = got is not None and (pushed is None or got > pushed)
        if first or pushed is None or now_ms - pushed >= self.interval_ms:
            self._pushed_ms = now_ms
            return True
        return False

    def failed(self, code: ErrorCode) -> None:
        """The payload could not be read."""
        self._last_error = code

    def take(self, points: Iterable[Point]) -> int:
        """Keep the latest values; returns how many points had no room."""
        dropped = 0
        for point in points:
            key = (point.name, point.attributes)
            series = self.series.get(key)
            if series is None:
                if len(self.series) >= SERIES_MAX:
                    dropped += 1
                    continue
                series = self.series[key] = Series()
            series.take(point)
        return dropped


class ClientTelemetry:
    """See the module docstring.

    Attributes:
        is_enabled: sparkraft.telemetry.enable: its requests are advertised and served.
        bytes_max: telemetry.max.bytes, of a payload before and after decompression.
        pushes: payloads that were read.
        throttled: requests that came too early.
        unknown_subscriptions: pushes for a subscription that has changed.
        dropped: points that were left out.
    """

    def __init__(
        self,
        clock: "Clock",
        entropy: "Entropy",
        *,
        is_enabled: bool,
        bytes_max: int,
        image: "Callable[[], ClusterImage]",
    ) -> None:
        self.is_enabled = is_enabled
        self.bytes_max = bytes_max
        self.pushes = 0
        self.throttled = 0
        self.unknown_subscriptions = 0
        self.dropped = 0
        self._clock = clock
        self._entropy = entropy
        self._image = image
        self._configs: Any = None
        self._texts: list[dict[str, str]] = []
        self._subscriptions: list[Subscription] = []
        self._version = 0
        """Of the subscriptions: instances of an earlier one are made again when they are used."""
        self._instances: OrderedDict[Uuid, Instance] = OrderedDict()

    def __len__(self) -> int:
        """The instances that are known."""
        return len(self._instances)

    def instances(self) -> Iterator[Instance]:
        """Those that were not silent for too long, the one silent longest first."""
        self._expire()
        return iter(list(self._instances.values()))

    def subscribe(self, instance_id: Uuid, client_of: ClientOf) -> Instance:
        """The instance of a GetTelemetrySubscriptions; a zero id makes a new one.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED.
        """
        if instance_id == Uuid.ZERO:
            instance_id = random_uuid(self._entropy)
        instance = self._instance(instance_id, client_of)
        try:
            instance.check_get(self._clock.mono_ms())
        except KafkaError:
            self.throttled += 1
            raise
        return instance

    def begin_push(self, request: Any, client_of: ClientOf) -> Instance:
        """Check a PushTelemetry; `read_payload` and `end_push` come next.

        Raises:
            KafkaError: INVALID_REQUEST for a reserved id, and those of `Instance.check_push`.
        """
        if request.client_instance_id in _RESERVED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "invalid client instance id")
        instance = self._instance(request.client_instance_id, client_of)
        try:
            instance.check_push(request, self.bytes_max, self._clock.mono_ms())
        except KafkaError as error:
            self.throttled += error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            self.unknown_subscriptions += error.code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
            raise
        return instance

    def end_push(self, instance: Instance, payload: Payload) -> None:
        """Keep the values of a push."""
        self.pushes += 1
        self.dropped += payload.dropped + instance.take(payload.points)

    def forget_with(self, connection: Any, instance_id: Uuid) -> None:
        """Forget the instance when its connection closes."""
        connection.listener.when_closed(connection, lambda _: self._forget(instance_id))

    def _forget(self, instance_id: Uuid) -> None:
        self._instances.pop(instance_id, None)

    def _instance(self, instance_id: Uuid, client_of: ClientOf) -> Instance:
        self._update_subscriptions()
        instance = self._instances.get(instance_id)
        if instance is None or instance.version != self._version:
            client = client_of(instance_id) if instance is None else instance.client
            made = Instance(instance_id, client, self._subscriptions, self._version)
            if instance is not None:
                made.resubscribed(instance)
            instance = self._instances[instance_id] = made
        self._instances.move_to_end(instance_id)
        instance.used(self._clock.mono_ms())
        if len(self._instances) > INSTANCES_MAX:
            self._instances.popitem(last=False)
        return instance

    def _update_subscriptions(self) -> None:
        """Read the subscriptions again if configs have changed."""
        configs = self._image().configs
        if configs is self._configs:
            return
        self._configs = configs
        names = sorted(name for kind, name in configs if kind == ResourceType.CLIENT_METRICS)
        texts = [dict(configs[ResourceType.CLIENT_METRICS, name]) for name in names]
        if texts != self._texts:
            self._texts = texts
            self._subscriptions = [subscription_of(each) for each in texts]
            self._version += 1

    def _expire(self) -> None:
        now_ms = self._clock.mono_ms()
        for each in list(self._instances.values()):
            if now_ms - each.last_used_ms > each.silent_ms_max:
                del self._instances[each.id]


def read_payload(
    compression: int, data: bytes, bytes_max: int, pause: Callable[[], None] = lambda: None
) -> Payload:
    """Read the points of a payload; in a thread, which calls `pause` now and then.

    Raises:
        KafkaError: TELEMETRY_TOO_LARGE above `bytes_max` decompressed, INVALID_RECORD if malformed.
    """
    try:
        plain = decompress(compression, data, bytes_max)
    except InflatedError as error:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, str(error)) from error
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    points: list[Point] = []
    count = 0
    try:
        for count, point in enumerate(read_points(bytes(plain), pause), 1):
            if _fits(point):
                points.append(point)
            if count == POINTS_MAX:
                break
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    return Payload(points, count - len(points))


def _fits(point: Point) -> bool:
    return (
        point.name.startswith(PREFIX)
        and len(point.name) <= TEXT_MAX
        and all(len(key) <= TEXT_MAX and len(text) <= TEXT_MAX for key, text in point.attributes)
    )


def _throttled() -> KafkaError:
    return KafkaError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the request came before the next push interval"
    )


def _subscription_id(metrics: list[str], interval_ms: int, instance_id: Uuid) -> int:
    """The same on every broker, so that a client may push to another one."""
    text = f"{','.join(metrics)} {interval_ms} {instance_id}".encode()
    number = zlib.crc32(text)
    return number - (1 << 32) if number >> 31 else number
