"""The rules that operators write, as values, and how several become one verdict.

Guarantees: the strictest rule wins (refuse, then signatures, then allow), whatever their
order; signatures that several rules ask for are all asked for at once; a rule that could not
be evaluated counts as one that matches, unless it would allow. An allowing rule waives what
the tool itself asks for, and never another rule.

Does not evaluate conditions (`policy.py`) and does not read rows (`policy_store.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from tools.declarations import Approve
from tools.redaction import bound_text
from tools.spec import ToolSpec

PolicyOutcome = Literal["allow", "require_approval", "refuse"]
Judge = Literal["agent", "requester", "all"]

LONGEST_RULE: Final = 2_000
# Later than this nobody remembers what was asked; and a date must hold the sum.
LONGEST_TIME: Final = timedelta(days=366)
# Of one rule's expression, so that several rules find room on the one line.
LONGEST_TOLD: Final = 300


@dataclass(frozen=True, kw_only=True)
class PolicyRule:
    """The newest version of one policy; `outcome` is never "stop"."""

    name: str
    version: int
    tool: str = ""
    provider: str = ""
    agent: str = ""
    when: str = "true"
    outcome: PolicyOutcome
    approve: Approve = Approve()  # noqa: RUF009 (frozen)
    window_seconds: float | None = None
    window_by: Judge = "agent"
    window_money: str = ""

    def applies_to(self, spec: ToolSpec, *, agent: str) -> bool:
        """Whether its selectors choose this call; an empty one chooses every call."""
        return (
            self.tool in ("", spec.name)
            and self.provider in ("", spec.provider_name)
            and self.agent in ("", agent)
        )

    def told(self, problem: str = "") -> str:
        """Its name, version and expression; `problem` is why that could not be evaluated."""
        when = bound_text(self.when, LONGEST_TOLD)
        failed = f" (could not be evaluated: {problem})" if problem else ""
        return f"{self.name} v{self.version}: {when}{failed}"


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Sending is switched off: for one tool, for one provider, or for all where both are empty."""

    tool: str = ""
    provider: str = ""
    author: str
    reason: str
    since: datetime

    def concerns(self, spec: ToolSpec) -> bool:
        return self.tool in ("", spec.name) and self.provider in ("", spec.provider_name)

    def told(self) -> str:
        """Who stopped what, since when and why."""
        what = self.tool or (f"provider {self.provider}" if self.provider else "everything")
        return bound_text(
            f"sending is stopped for {what} by {self.author} "
            f"since {self.since:%Y-%m-%d %H:%M:%S} UTC: {self.reason}"
        )


@dataclass(frozen=True)
class Match:
    """A rule whose condition holds, or (with a `problem`) could not be evaluated."""

    rule: PolicyRule
    problem: str = ""

    @property
    def counts(self) -> bool:
        return not (self.problem and self.rule.outcome == "allow")


@dataclass(frozen=True)
class OwnRule:
    """What the tool itself asks for. `is_default`: only because it is irreversible."""

    told: str
    asks: bool
    approve: Approve | None = None
    is_default: bool = False


@dataclass(frozen=True)
class Verdict:
    outcome: PolicyOutcome
    rule: str
    approve: Approve | None = None


def combine(own: OwnRule, matches: Iterable[Match]) -> Verdict:
    """One verdict of the tool's own rule and of all rules that match."""
    counted = sorted(
        (match for match in matches if match.counts), key=lambda match: match.rule.name
    )
    if refusing := _of(counted, "refuse"):
        return Verdict("refuse", _told(refusing))
    asking = _of(counted, "require_approval")
    allowing = _of(counted, "allow")
    own_asks = own.asks and not allowing
    if asking:
        asked = [match.rule.approve for match in asking]
        told = _told(asking)
        # The default of irreversible tools only says that somebody must sign.
        if own_asks and own.approve is not None and not own.is_default:
            asked.append(own.approve)
            told = bound_text(f"{told}; the tool's own: {own.told}", LONGEST_RULE)
        return Verdict("require_approval", told, combine_signatures(asked))
    if own_asks:
        return Verdict("require_approval", own.told, own.approve)
    return Verdict("allow", _told(allowing) if allowing else own.told)


def combine_signatures(asked: Sequence[Approve]) -> Approve:
    """All that several rules ask for at once. Of one rule: that rule's.

    Escalation lets others sign in the place of a group, so it must be what every rule wants:
    the groups that all of them name, after the longest time.
    """
    if len(asked) == 1:
        return asked[0]
    first, *others = asked
    escalate_to = tuple(
        group for group in first.escalate_to if all(group in one.escalate_to for one in others)
    )
    waits = [one.escalate_after for one in asked if one.escalate_after is not None]
    reminders = [one.remind_after for one in asked if one.remind_after is not None]
    return Approve(
        groups=tuple(dict.fromkeys(group for one in asked for group in one.groups)),
        quorum=max(one.quorum for one in asked),
        approve_by=min(one.approve_by for one in asked),
        execute_by=min(one.execute_by for one in asked),
        escalate_to=escalate_to,
        escalate_after=max(waits, default=timedelta(0)) if escalate_to else None,
        remind_after=min(reminders, default=None),
    )


def _of(matches: Sequence[Match], outcome: PolicyOutcome) -> list[Match]:
    return [match for match in matches if match.rule.outcome == outcome]


def _told(matches: Sequence[Match]) -> str:
    return bound_text("; ".join(match.rule.told(match.problem) for match in matches), LONGEST_RULE)


def unsignable(approve: Approve) -> Iterator[tuple[str, str, str]]:
    """What would keep those who are asked from ever signing: the field, what, and the fix."""
    if approve.quorum < 1:
        yield "quorum", f"{approve.quorum} people can never sign.", "Ask for at least one."
    for field in ("approve_by", "execute_by"):
        time: timedelta = getattr(approve, field)
        if not timedelta(0) < time <= LONGEST_TIME:
            yield (
                field,
                f"{time} is no time in which anybody could act.",
                f"Make it positive, and at most {LONGEST_TIME.days} days.",
            )
    for field in ("escalate_after", "remind_after"):
        wait: timedelta | None = getattr(approve, field)
        if wait is not None and not timedelta(0) < wait < approve.approve_by:
            yield (
                field,
                f"{wait} is not within approve_by={approve.approve_by}.",
                "Make it positive and shorter than approve_by.",
            )
    if bool(approve.escalate_to) != (approve.escalate_after is not None):
        yield (
            "escalate_after" if approve.escalate_to else "escalate_to",
            "escalate_to and escalate_after say nothing without each other.",
            "Give both: which groups may sign then, and after how long.",
        )
