"""Why something was not delivered."""

from tools.redaction import bound_text

MOST_WORDS = 300


class NotDelivered(Exception):
    """The receiver did not take it.

    `for_good`: trying again cannot help. `lane_is_down`: neither can trying others of the
    same receiver now.
    """

    def __init__(self, why: str, *, for_good: bool = False, lane_is_down: bool = False) -> None:
        self.why = bound_text(why, MOST_WORDS)
        self.for_good = for_good
        self.lane_is_down = lane_is_down
        super().__init__(self.why)
