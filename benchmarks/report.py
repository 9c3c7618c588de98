"""A table of measurements, each with what it is held against."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One figure.

    Args:
        what: what was measured.
        ours: our figure with its unit.
        against: the peer's or the limit's figure from the same run.
        ratio: ours to the other's; None where there is none.
        at_least: the ratio that is promised, where more is better.
        at_most: the ratio that is promised, where less is better.
        failed: nothing was measured because of an error; counts as a promise that was missed.
    """

    what: str
    ours: str
    against: str
    ratio: float | None
    at_least: float | None = None
    at_most: float | None = None
    failed: bool = False

    @property
    def met(self) -> bool:
        """Whether what is promised holds; True where nothing is."""
        if self.failed:
            return False
        if self.ratio is None:
            return True
        low = self.at_least is None or self.ratio >= self.at_least
        return low and (self.at_most is None or self.ratio <= self.at_most)

    @property
    def promise(self) -> str:
        """What is promised, in words."""
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least:g} to {self.at_most:g}"
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return f"≤ {self.at_most:g}" if self.at_most is not None else ""

    @property
    def verdict(self) -> str:
        """Whether the promise was kept, in words."""
        if self.failed:
            return "**failed**"
        if not self.promise:
            return ""
        return "met" if self.met else "**missed**"


@dataclass
class Table:
    """Rows under a title; printed as Markdown, so that it can be read here and kept there."""

    title: str
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Add a row and show it at once: these take a while."""
        self.rows.append(row)
        print(f"  {row.what}: {row.ours} (against {row.against or 'nothing'})", flush=True)

    @property
    def met(self) -> bool:
        """Whether every promise holds."""
        return all(row.met for row in self.rows)

    def print(self) -> None:
        """Print the table."""
        print(f"\n### {self.title}\n\n| what | ours | against | ratio | promised | |")
        print("|---|---|---|---|---|---|")
        for row in self.rows:
            ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
            cells = row.what, row.ours, row.against, ratio, row.promise, row.verdict
            print("|", " | ".join(cells), "|")
