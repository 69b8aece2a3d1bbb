"""A clock that moves only when a contestant works."""

from collections.abc import Callable


class Clock:
    """A time that contestants spend; `played` lists them in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.played: list[str] = []

    def contestant(self, name: str, *seconds: float) -> Callable[[], None]:
        """Return one whose calls take these times, the last one for ever."""
        left = list(seconds)

        def call() -> None:
            self.played.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call
