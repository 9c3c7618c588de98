"""What a checker raises."""


class Violation(AssertionError):  # noqa: N818 (what it is called everywhere)
    """An invariant does not hold; `invariant` is its name."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text
