"""What a check found: one row per fault, and what is wrong with the declaration.

Guarantees: a report is sound only if every row that was run kept the promise and no
finding is an error; text of a provider or a tool is bounded and kept on its line.
Does not judge: `promise.py` and `declaration.py` do.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from tools.redaction import bound_text
from tools.testing.errors import Unsound

Verdict = Literal["kept", "BROKEN", "not run"]
Level = Literal["error", "note"]

LONGEST_WHY: Final = 160
LONGEST_SENTENCE: Final = 600
NOT_PROBED: Final = (
    "The declaration was NOT PROBED: its keys, its look-up and its client are not proven. "
    "Run it without naming faults."
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of one operation under one fault.

    `sends` and `look_ups` count how often the tool's function and handler were entered,
    `effects` what the provider has at the end. `ended` is COMMITTED, REJECTED, CANCELLED,
    "a person" or "unknown"; all four are empty or None in a row that was not run.
    """

    fault: str
    says: str
    sends: int | None = None
    look_ups: int | None = None
    effects: int | None = None
    ended: str = ""
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing in a declaration that is not so: its name, the field, what was seen, the fix."""

    name: str
    field: str
    says: str
    fix: str
    level: Level = "error"

    def __str__(self) -> str:
        return f"{self.level} {self.name}: {self.field}: {one_line(self.says)}. Fix: {self.fix}"


@dataclass(frozen=True, kw_only=True)
class Report:
    """The outcome of `check`. `str()` is the table with the findings below it.

    `probed` is False where the rows are all that was tried: then a declaration that is
    wrong in another way was not looked for.
    """

    tool: str
    effect_type: str
    provider: str
    scale: str
    probed: bool
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether it kept its promise under every fault that was run, and nothing was found."""
        return not self.broken and all(found.level != "error" for found in self.findings)

    @property
    def broken(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.verdict == "BROKEN")

    def row(self, fault: str) -> Row:
        """The row of a fault. Raises KeyError."""
        for row in self.rows:
            if row.fault == fault:
                return row
        raise KeyError(fault)

    def table(self, columns: Sequence[str] = ()) -> str:
        """The rows as aligned Markdown; `columns` are headings, all of them unless given."""
        return _aligned(
            [
                [cell for name, cell in _cells(row).items() if not columns or name in columns]
                for row in self.rows
            ],
            heads=[name for name in _HEADS if not columns or name in columns],
        )

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "tool": self.tool,
            "effect_type": self.effect_type,
            "provider": self.provider,
            "ok": self.ok,
            "probed": self.probed,
            "scale": self.scale,
            "rows": [asdict(row) for row in self.rows],
            "findings": [asdict(found) for found in self.findings],
        }

    def __str__(self) -> str:
        at = f" at {self.provider}" if self.provider else ""
        parts = [f"{self.tool}: {self.effect_type}{at}. {self.scale}", self.table()]
        parts += ["\n".join(str(found) for found in self.findings)] if self.findings else []
        return "\n\n".join([*parts, self._conclusion()])

    def _conclusion(self) -> str:
        return self._judgement() if self.probed else f"{self._judgement()} {NOT_PROBED}"

    def _judgement(self) -> str:
        if self.ok:
            return "Sound: the promise was kept under every fault that was run."
        names = [row.fault for row in self.broken]
        unexplained = self.probed and all(found.level != "error" for found in self.findings)
        if names and unexplained:
            return (
                f"NOT SOUND: broken under {', '.join(names)}, and no wrong declaration was found: "
                "the tool or the counter does something that the probes do not look for."
            )
        return "NOT SOUND" + (f": broken under {', '.join(names)}." if names else ".")


def assert_sound(report: Report) -> None:
    """Raises Unsound, an AssertionError that shows the whole report, unless it is sound."""
    if not report.ok:
        raise Unsound(report)


def one_line(text: str, *, limit: int = LONGEST_SENTENCE) -> str:
    """Foreign text for one line of a table: bounded, printable, no bars and no breaks."""
    return bound_text("".join(_shown(c) for c in " ".join(text.split())), limit)


def _shown(character: str) -> str:
    # A terminal obeys control characters, and so could a provider's error message.
    return {"|": "/"}.get(character, character if character.isprintable() else "?")


_HEADS: Final = ("fault", "sends", "look-ups", "effects", "ended as", "verdict", "why")


def _cells(row: Row) -> dict[str, str]:
    counts = ["–" if n is None else str(n) for n in (row.sends, row.look_ups, row.effects)]
    cells = [
        row.fault,
        *counts,
        row.ended or "–",
        row.verdict,
        one_line(row.why, limit=LONGEST_WHY),
    ]
    return dict(zip(_HEADS, cells, strict=True))


def _aligned(rows: list[list[str]], *, heads: list[str]) -> str:
    # The last column is not padded: one long reason would widen every line.
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)][:-1]

    def line(cells: list[str]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
        return f"| {' | '.join([*padded, cells[-1]])} |"

    rule = "|".join("-" * (width + 2) for width in [*widths, len(heads[-1])])
    return "\n".join([line(heads), f"|{rule}|", *map(line, rows)])
