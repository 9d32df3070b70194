"""How it went lately: tools that fail, incidents, and what was spent; from rollups.

Guarantees: two sums over rollups and one page of an index, however much happened.

Does not know the last seconds: rollups are counted every half minute.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from django.utils import timezone
from django.utils.html import format_html

from agentops.desk.shapes import ROWS, Figure, Section, Viewer, meter, say_count
from runs.admin.readonly import Cell, Table
from runs.admin.show import Tone, badge, line, link, list_url, record_url, run_link, when
from runs.models import AgentRun, Incident, ToolOperation
from runs.slo.measures import Measure
from runs.slo.reading import Sum, sum_measures

HOUR, DAY = timedelta(hours=1), timedelta(hours=24)
# From this part of the calls on, a tool is said to fail.
FAILS_FROM: Final = 0.1
_OF_TOOLS: Final = (
    Measure.OPERATIONS_SENT,
    Measure.OPERATIONS_COMMITTED,
    Measure.OPERATIONS_REJECTED,
    Measure.UNKNOWN_SECONDS,
)
_OF_AGENTS: Final = (Measure.LLM_TOKENS, Measure.LLM_COST_USD)


@dataclass(frozen=True)
class Calls:
    """What became of a tool's calls: `lost` are those whose answer was, whatever they came to."""

    committed: int = 0
    rejected: int = 0
    lost: int = 0

    @property
    def failing(self) -> float:
        """Which part of them did not simply come off, from 0 to 1."""
        all_of_them = max(self.committed + self.rejected, self.lost)
        return min(1.0, (self.rejected + self.lost) / all_of_them) if all_of_them else 0.0
