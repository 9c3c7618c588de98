"""An amount per second over a number of windows: Kafka's Rate over a SampledStat."""


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

    def throttle_ms(self, per_second: float, now: int) -> int:
        """How long nothing may be added for the rate to be `per_second` at most; 0: it is."""
        elapsed_ms = self._elapsed_ms(now)
        rate = sum(sample[2] for sample in self._samples) * 1000 / elapsed_ms
        if rate <= per_second:
            return 0
        return round((rate - per_second) / per_second * elapsed_ms)

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
