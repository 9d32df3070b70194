"""Cases: what a run was shown and decided, as a file that today's agent can be tried against.

`exporting.py` writes one from rows, `replaying.py` has an agent decide it again, and
`comparing.py` says what is different. `export_case` and `replay_case` are their commands.
"""

from runs.cases.files import UnreadableCase, load_case
from runs.cases.replaying import Replay, Replayed, UnknownStep, replay
from runs.cases.shapes import Case

__all__ = ["Case", "Replay", "Replayed", "UnknownStep", "UnreadableCase", "load_case", "replay"]
