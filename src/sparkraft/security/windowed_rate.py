"""An amount per second over a number of windows: Kafka's Rate over a SampledStat."""

THROTTLE_MS_MAX = (1 << 31) - 1
"""The longest that a response can report. A quota of 1 byte a second is meant to stop a client:
Kafka's number overflows there, and the client waits for nothing."""


def whole_ms(throttle_ms: float) -> int:
    """A throttle as responses report it; 0 if it is not a number, as in Kafka.

    A quota in a record of another controller may be anything, also infinite or not a number.
    """
    if throttle_ms >= THROTTLE_MS_MAX:
        return THROTTLE_MS_MAX
    return round(throttle_ms) if throttle_ms > 0 else 0


class WindowedRate:
    """Kafka's Rate: an amount per second over a number of windows."""

    __slots__ = ("_current", "_samples", "_samples_max", "_window_ms")

    def __init__(self, *, samples: int, window_ms: int) -> None:
        self._samples_max = samples + 1  # one more, which overlaps the end of the time measured
        self._window_ms = window_ms
        self._samples: list[list[float]] = []
        """[start, last event, amount]; `_current` is the one that is recorded to."""
        self._current = 0

    def record(self, amount: float, now: int) -> None:
        """Add `amount` at `now`, monotonic ms."""
        samples = self._samples
        if not samples:
            samples.append([now, now, 0.0])
        sample = samples[self._current]
        if now - sample[0] >= self._window_ms:
            self._current = (self._current + 1) % self._samples_max
            if self._current == len(samples):
                samples.append([now, now, 0.0])
            else:
                samples[self._current][:] = (now, now, 0.0)
            sample = samples[self._current]
        sample[1] = now
        sample[2] += amount

    def per_second(self, now: int) -> float:
        """The rate at `now`."""
        elapsed_ms = self._elapsed_ms(now)
        return sum(sample[2] for sample in self._samples) * 1000 / elapsed_ms

    def _elapsed_ms(self, now: int) -> int:
        """The time that the samples cover, after those without recent events are emptied."""
        expires_ms = (self._samples_max - 1) * self._window_ms
        for sample in self._samples:
            if now - sample[1] >= expires_ms:
                sample[:] = (now, now, 0.0)
        elapsed = now - int(min((sample[0] for sample in self._samples), default=now))
        missing = self._samples_max - 2 - elapsed // self._window_ms
        if missing > 0:
            elapsed += missing * self._window_ms
        return max(elapsed, 1)
