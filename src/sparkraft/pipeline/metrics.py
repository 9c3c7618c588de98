"""Metrics of a running pipeline for Prometheus, from the driver's process.

Names start with `sparkraft_pipeline_`; the only label is the pipeline's name.

Not here: a node's metrics (`sparkraft.server.metrics`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from sparkraft.pipeline.spec import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkraft.pipeline.progress import Progress

_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_PREFIX: Final = "sparkraft_pipeline_"
_PORT_MAX: Final = 0xFFFF


class PipelineMetrics:
    """The metrics of one pipeline; `observe` each of its batches."""

    def __init__(self, name: str) -> None:
        """Start at zero: counters count since the start of this process."""
        self.registry = CollectorRegistry()

        def counter(what: str, about: str) -> Counter:
            return Counter(_PREFIX + what, about, ["pipeline"], registry=self.registry)

        def gauge(what: str, about: str) -> Gauge:
            return Gauge(_PREFIX + what, about, ["pipeline"], registry=self.registry)

        self._records = counter("records", "Records read").labels(name)
        self._late = counter("late_records", "Rows dropped by the watermark").labels(name)
        self._damaged = counter("damaged_records", "Records that do not fit").labels(name)
        self._misfits = counter("misfit_rows", "Rows that do not fit their sink").labels(name)
        self._ignored = counter(
            "ignored_values", "Values of columns that the table does not have"
        ).labels(name)
        self._letters = counter("dead_letters", "Records and rows written as dead letters").labels(
            name
        )
        self._bytes = counter("read_bytes", "Bytes of keys and values read").labels(name)
        self._retries = counter("task_retries", "Tasks that failed and were repeated").labels(name)
        self._seconds = Histogram(
            _PREFIX + "batch_seconds", "Duration of a batch", ["pipeline"], buckets=_SECONDS,
            registry=self.registry,
        ).labels(name)  # fmt: skip
        self._batch = gauge("last_batch", "Number of the last batch").labels(name)
        self._ended = gauge(
            "last_batch_timestamp_seconds", "Time at which the last batch was reported"
        ).labels(name)
        self._lag = gauge(
            "lag_offsets", "Offsets after the end of the last batch; NaN if unknown"
        ).labels(name)
        self._lag_seconds = gauge(
            "lag_seconds", "Age of the oldest record that is not processed; NaN if unknown"
        ).labels(name)
        for each in (self._lag, self._lag_seconds):
            each.set(float("nan"))

    def observe(self, progress: Progress) -> None:
        """Add a batch, or a report without one, which has only a lag."""
        for gauge, value in (
            (self._lag, progress.lag),
            (self._lag_seconds, progress.lag_seconds),
        ):
            gauge.set(float("nan") if value is None else value)
        if not progress.is_batch:
            return
        self._records.inc(progress.records)
        self._late.inc(progress.dropped)
        self._damaged.inc(progress.damaged)
        if progress.set_aside is not None:
            self._misfits.inc(progress.set_aside.misfits)
            self._ignored.inc(progress.set_aside.ignored)
            self._letters.inc(progress.set_aside.dead_letters)
        self._bytes.inc(progress.bytes or 0)
        self._retries.inc(progress.retries or 0)
        self._seconds.observe(progress.seconds)
        self._batch.set(progress.batch_id)
        self._ended.set_to_current_time()

    @contextmanager
    def served(self, listen: str) -> Iterator[int]:
        """Serve them at `host:port` in a thread, and return the port; 0 chooses a free one."""
        host, port = parsed_listen(listen)
        try:
            server, thread = start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            raise SpecError(f"metrics cannot be served at {listen}: {error.strerror}") from error
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def parsed_listen(listen: str) -> tuple[str, int]:
    """Parse `host:port`; `SpecError` if it is invalid."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise SpecError(f"metrics must be host:port, such as 127.0.0.1:9464, not {listen!r}")
    return host, int(port)
