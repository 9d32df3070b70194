"""The page of effects under faults: one example of each effect type, as the kit prints it."""

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from examples.shop.provider_process import provider_process
from tests.conformance.kit_tools import Shop, count_notes, new_refund, note_tool, notes_table
from tools import EffectType
from tools.testing import Report
from tools.testing.catalogue import ALL, EVERY_COMMIT, FAULTS, NONE

PAGE: Final = Path(__file__).resolve().parents[2] / "docs/reference/effects-under-faults.md"
# How often is asked before something is settled depends on the machine.
COLUMNS: Final = ("fault", "sends", "effects", "ended as", "verdict", "why")

Example = Callable[[ExitStack, Path], dict[str, Any]]


def written_table(heading: str) -> str:
    """The table below a heading of the page."""
    _, _, below = PAGE.read_text().partition(f"\n## {heading}\n")
    section = below.partition("\n## ")[0]
    return "\n".join(line for line in section.splitlines() if line.startswith("|"))


def table_of_faults() -> str:
    """What each fault does, as the page lists it."""
    rows = [f"| `{fault.name}` | {fault.says} |" for fault in FAULTS]
    return "\n".join(["| fault | what happens |", "|---|---|", *rows])


def table_of(report: Report) -> str:
    """The report as the page shows it. How an effect was proven may differ, and is left out."""
    rows = [
        dataclasses.replace(row, why="") if row.ended == "COMMITTED" else row for row in report.rows
    ]
    return dataclasses.replace(report, rows=tuple(rows)).table(COLUMNS)


def faults_unlike_the_page(report: Report, heading: str) -> set[str]:
    """The faults of the rows that the page shows otherwise, as `check` is asked for them."""
    written = set(written_table(heading).splitlines())
    _, _, *lines = table_of(report).splitlines()
    unlike = {
        row.fault
        for row, line in zip(report.rows, lines, strict=True)
        if line not in written and row.fault != NONE.name
    }
    # Of the commits each is a row, and all are one fault.
    return {name if name in ALL else EVERY_COMMIT for name in unlike}


def _shop(under: ExitStack, directory: Path, *, ignore_keys: bool = False) -> Shop:
    ledger = directory / "ledger.sqlite3"
    return Shop(under.enter_context(provider_process(ledger, ignore_keys=ignore_keys)))


def _read(under: ExitStack, directory: Path) -> dict[str, Any]:
    shop = _shop(under, directory)
    return {"tool": shop.read(), "arguments": {"order_id": "17"}, "count_effects": shop.count}


def _transactional(under: ExitStack, directory: Path) -> dict[str, Any]:
    under.enter_context(notes_table())
    return {"tool": note_tool(), "arguments": {"words": "kept"}, "count_effects": count_notes}


def _idempotent(under: ExitStack, directory: Path) -> dict[str, Any]:
    shop = _shop(under, directory)
    refund = shop.refund(EffectType.IDEMPOTENT_WRITE)
    return {"tool": refund, "arguments": new_refund, "count_effects": shop.count}


def _non_idempotent(under: ExitStack, directory: Path) -> dict[str, Any]:
    shop = _shop(under, directory, ignore_keys=True)
    refund = shop.refund(EffectType.NON_IDEMPOTENT_WRITE)
    return {"tool": refund, "arguments": new_refund, "count_effects": shop.count}


def _irreversible(under: ExitStack, directory: Path) -> dict[str, Any]:
    shop = _shop(under, directory, ignore_keys=True)
    refund = shop.refund(EffectType.IRREVERSIBLE, reconcile_handler=None)
    return {"tool": refund, "arguments": new_refund, "count_effects": shop.count}


EXAMPLES: Final[dict[str, Example]] = {
    "READ": _read,
    "TRANSACTIONAL": _transactional,
    "IDEMPOTENT_WRITE": _idempotent,
    "NON_IDEMPOTENT_WRITE": _non_idempotent,
    "IRREVERSIBLE": _irreversible,
}
