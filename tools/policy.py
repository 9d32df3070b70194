"""Whether a call may be sent, needs a signature, or is refused.

By the rule that the tool declares and by the policies that operators write (`ToolPolicy`).

Guarantees: a rule that cannot be evaluated asks, or refuses, and never allows; an irreversible
tool needs a signature unless a policy says otherwise in so many words; one version names all
that a decision could have depended on, and does not change with anything else. Nothing is
queried but the windows, and those only where arguments and circumstances do not already
decide.

Does not know who may sign, nor whether somebody did: `approvals` does. Does not count: the
kernel does, and includes the call that is judged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from tools.canonical import digest
from tools.declarations import Approve, EffectType
from tools.errors import InvalidArguments, RuleFailed
from tools.expressions import ARGUMENTS, WINDOW, check_expression, execute
from tools.policy_rules import (
    Judge,
    Match,
    OwnRule,
    PolicyOutcome,
    PolicyRule,
    combine,
)
from tools.policy_store import current, known_generation, refresh
from tools.redaction import scrub
from tools.spec import ToolSpec

__all__ = [
    "Circumstances",
    "PolicyDecision",
    "PolicyOutcome",
    "Window",
    "WindowQuery",
    "check_expression",
    "evaluate",
    "find_stop",
    "known_generation",
    "refresh",
]

ALLOWED_WITHOUT_RULE = "no approval_policy"
IRREVERSIBLE_WITHOUT_RULE = "irreversible, and no approval_policy says otherwise"
# Changes when the meaning of the two rules above does.
DEFAULT_VERSION = "default-1"
VERSION_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class WindowQuery:
    """What to count: the calls of `tool` within `seconds`, by whom.

    `money` is the argument that is added up, or empty.
    """

    tool: str
    seconds: float
    by: Judge
    money: str = ""


@dataclass(frozen=True)
class Window:
    """What was counted, the call that is judged included."""

    count: int
    total: Decimal = Decimal(0)


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What rules may ask about besides the call itself. `confidence`: of the decision, 0 to 1."""

    agent: str = ""
    requester: str = ""
    confidence: float | None = None
    read_window: Callable[[WindowQuery], Window] | None = None


@dataclass(frozen=True)
class PolicyDecision:
    """What the policies said of one call, and by which versions of which rules.

    `counts`: it depended on a window, so another call at the same moment may change it.
    """

    outcome: PolicyOutcome
    rule: str
    version: str
    approve: Approve | None
    counts: bool = False


def evaluate(
    spec: ToolSpec,
    arguments: Mapping[str, Any],
    circumstances: Circumstances = Circumstances(),
) -> PolicyDecision:
    """Decide over normalised arguments. Raises what `read_window` does, and nothing else.

    A ValueError of it says that there is nothing to add up: the rule failed.
    """
    rules = [rule for rule in current().rules if rule.applies_to(spec, agent=circumstances.agent)]
    call = _Call(spec, arguments, circumstances)
    own = _judge_own(call)
    matches, undecided = _judge_rules(call, rules)
    if not own.asks:
        # There is nothing that one more allowing rule could waive.
        undecided = [rule for rule in undecided if rule.outcome != "allow"]
    if any(match.rule.outcome == "refuse" for match in matches):
        undecided = []
    matches += _judge_in_windows(call, undecided)
    verdict = combine(own, matches)
    return PolicyDecision(
        verdict.outcome, verdict.rule, _version(spec, rules), verdict.approve, bool(undecided)
    )


def find_stop(spec: ToolSpec) -> str:
    """Why nothing is sent by this tool now, and by whose word; empty if it may be. No query."""
    for stop in current().stops:
        if stop.concerns(spec):
            return stop.told()
    return ""


# -- Judging -------------------------------------------------------------------


@dataclass
class _Call:
    """The call that is judged, and what was found out about it so far."""

    spec: ToolSpec
    arguments: Mapping[str, Any]
    circumstances: Circumstances
    windows: dict[WindowQuery, Window] = field(default_factory=dict)
    _bound: dict[str, Any] | InvalidArguments | None = None

    def bound(self) -> dict[str, Any]:
        """The arguments as Python values. Raises InvalidArguments, again and again."""
        if self._bound is None:
            try:
                self._bound = self.spec.bind(self.arguments)
            except InvalidArguments as error:
                self._bound = error
        if isinstance(self._bound, InvalidArguments):
            raise self._bound
        return self._bound

    def holds(self, when: str, *, top_level: bool, window: Mapping[str, Any] | None = None) -> bool:
        """Whether an expression is true. Raises RuleFailed."""
        around: dict[str, Any] = {
            "tool": self.spec.name,
            "effect_type": self.spec.effect_type.value,
            "provider": self.spec.provider_name,
            "account": self.spec.account,
            "agent": self.circumstances.agent,
            "requester": self.circumstances.requester,
            "confidence": self.circumstances.confidence,
        }
        if window is not None:
            around[WINDOW] = window
        try:
            bound = self.bound()
        except InvalidArguments as error:
            raise RuleFailed(when, problem=str(error)) from error
        names = {**(bound if top_level else {}), **around, ARGUMENTS: bound}
        if window is None:
            # Not even an argument of that name: it is reached as `arguments.window`.
            names.pop(WINDOW, None)
        return execute(when, names.__getitem__)

    def told(self, failed: RuleFailed) -> str:
        """Why an expression failed, without the values of sensitive arguments."""
        return scrub(failed.problem, self.arguments, self.spec.sensitive)


def _judge_own(call: _Call) -> OwnRule:
    spec = call.spec
    approve = spec.approval_policy
    if approve is None:
        if spec.effect_type is EffectType.IRREVERSIBLE:
            return OwnRule(IRREVERSIBLE_WITHOUT_RULE, True, Approve(), is_default=True)
        return OwnRule(ALLOWED_WITHOUT_RULE, False)
    try:
        return OwnRule(approve.when, call.holds(approve.when, top_level=True), approve)
    except RuleFailed as failed:
        told = str(RuleFailed(approve.when, problem=call.told(failed)))
        return OwnRule(told, True, approve)


def _judge_rules(call: _Call, rules: Sequence[PolicyRule]) -> tuple[list[Match], list[PolicyRule]]:
    """The rules that match, and those that only their window can decide."""
    matches: list[Match] = []
    undecided: list[PolicyRule] = []
    for rule in rules:
        try:
            if call.holds(rule.when, top_level=bool(rule.tool)):
                matches.append(Match(rule))
        except RuleFailed as failed:
            if rule.window_seconds is None:
                matches.append(Match(rule, call.told(failed)))
            else:
                undecided.append(rule)
    return matches, undecided


def _judge_in_windows(call: _Call, rules: Sequence[PolicyRule]) -> list[Match]:
    matches: list[Match] = []
    for rule in rules:
        try:
            window = _window_of(call, rule)
            if call.holds(rule.when, top_level=bool(rule.tool), window=window):
                matches.append(Match(rule))
        except RuleFailed as failed:
            matches.append(Match(rule, call.told(failed)))
    return matches


def _window_of(call: _Call, rule: PolicyRule) -> dict[str, Any] | None:
    read = call.circumstances.read_window
    if read is None or rule.window_seconds is None:
        return None
    query = WindowQuery(
        tool=call.spec.name,
        seconds=rule.window_seconds,
        by=rule.window_by,
        money=rule.window_money,
    )
    if query not in call.windows:
        try:
            call.windows[query] = read(query)
        except ValueError as error:
            raise RuleFailed(rule.when, problem=str(error)) from error
    found = call.windows[query]
    # Without an argument to add up there is no total, rather than one of nothing.
    return {"count": found.count} | ({"total": found.total} if rule.window_money else {})


# -- Versions ------------------------------------------------------------------


def _version(spec: ToolSpec, rules: Sequence[PolicyRule]) -> str:
    approve = spec.approval_policy
    own = DEFAULT_VERSION if approve is None else _version_of(approve)
    if not rules:
        return own
    return _version_with(own, tuple(sorted((rule.name, rule.version) for rule in rules)))


@lru_cache(maxsize=1024)
def _version_with(own: str, rules: tuple[tuple[str, int], ...]) -> str:
    return digest([own, [list(rule) for rule in rules]])[:VERSION_DIGITS]


@lru_cache(maxsize=1024)
def _version_of(approve: Approve) -> str:
    return digest({name: _plain(value) for name, value in asdict(approve).items()})[:VERSION_DIGITS]


def _plain(value: Any) -> Any:
    match value:
        case timedelta():
            return value.total_seconds()
        case tuple():
            return list(value)
        case _:
            return value
