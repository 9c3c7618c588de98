"""The exception for violated invariants."""


class Violation(AssertionError):  # noqa: N818 (its name everywhere)
    """Raised if an invariant does not hold; `invariant` is its name."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text
