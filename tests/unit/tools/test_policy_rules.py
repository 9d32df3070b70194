"""How several rules become one verdict."""

from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools import Approve
from tools.policy_rules import Match, OwnRule, PolicyRule, Verdict, combine, combine_signatures

STRICTNESS = {"allow": 0, "require_approval": 1, "refuse": 2}
NO_RULE = OwnRule("no approval_policy", False)
IRREVERSIBLE = OwnRule("irreversible", True, Approve(), is_default=True)

_groups = st.lists(st.sampled_from(["finance", "legal", "ops"]), unique=True).map(tuple)
_hours = st.integers(1, 48).map(lambda hours: timedelta(hours=hours))


@st.composite
def signatures(draw: Any) -> Approve:
    escalate_to = draw(_groups)
    return Approve(
        groups=draw(_groups),
        quorum=draw(st.integers(1, 4)),
        approve_by=draw(_hours),
        execute_by=draw(_hours),
        escalate_to=escalate_to,
        escalate_after=draw(_hours) if escalate_to else None,
        remind_after=draw(st.none() | _hours),
    )


@st.composite
def matches(draw: Any, outcomes: tuple[str, ...] = tuple(STRICTNESS)) -> Match:
    rule = PolicyRule(
        name=f"rule{draw(st.integers(1, 10**6))}",
        version=draw(st.integers(1, 9)),
        outcome=draw(st.sampled_from(outcomes)),
        approve=draw(signatures()),
    )
    return Match(rule, draw(st.sampled_from(["", "no such field"])))


owns = st.sampled_from([NO_RULE, IRREVERSIBLE]) | st.builds(
    OwnRule, st.just("amount > 5"), st.booleans(), signatures()
)


def of(outcome: Any, name: str = "a", problem: str = "", **signed: Any) -> Match:
    return Match(
        PolicyRule(name=name, version=1, outcome=outcome, approve=Approve(**signed)), problem
    )


def is_as_strict(later: Verdict, earlier: Verdict) -> bool:
    """Whether nothing that `earlier` asks for is missing from `later`."""
    if STRICTNESS[later.outcome] != STRICTNESS[earlier.outcome]:
        return STRICTNESS[later.outcome] > STRICTNESS[earlier.outcome]
    old, new = earlier.approve, later.approve
    if old is None or new is None:
        return old is None
    return (
        set(old.groups) <= set(new.groups)
        and old.quorum <= new.quorum
        and old.approve_by >= new.approve_by
        and old.execute_by >= new.execute_by
        and set(new.escalate_to) <= set(old.escalate_to)
        and (
            new.escalate_after is None
            or (old.escalate_after is not None and old.escalate_after <= new.escalate_after)
        )
    )


# -- The laws --------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(owns, st.lists(matches(), max_size=4), matches(outcomes=("require_approval", "refuse")))
def test_one_more_rule_that_does_not_allow_never_loosens(
    own: OwnRule, some: list[Match], one_more: Match
) -> None:
    before, after = combine(own, some), combine(own, [*some, one_more])
    if own.is_default and before.approve == own.approve:
        # That default only says that somebody signs: who and how long is the rule's to say.
        assert STRICTNESS[after.outcome] >= STRICTNESS[before.outcome]
        return
    assert is_as_strict(after, before)


@settings(deadline=None, max_examples=75)
@given(owns, st.lists(matches(), max_size=4, unique_by=lambda match: match.rule.name))
def test_the_order_of_rules_does_not_matter(own: OwnRule, some: list[Match]) -> None:
    assert len({combine(own, order) for order in permutations(some)}) == 1


@settings(deadline=None, max_examples=75)
@given(owns, st.lists(matches(), max_size=4), matches(outcomes=("allow",)))
def test_an_allowing_rule_waives_no_other_rule(
    own: OwnRule, some: list[Match], allowing: Match
) -> None:
    others = combine(NO_RULE, some)
    assert is_as_strict(combine(own, [*some, allowing]), others)


@settings(deadline=None, max_examples=75)
@given(owns, st.lists(matches(outcomes=("allow",)), max_size=3))
def test_an_allowing_rule_that_could_not_be_evaluated_allows_nothing(
    own: OwnRule, some: list[Match]
) -> None:
    failed = [Match(match.rule, "no such field") for match in some]
    assert combine(own, failed) == combine(own, [])


# -- By example ------------------------------------------------------------------------


def test_the_strictest_wins() -> None:
    assert combine(NO_RULE, [of("allow"), of("require_approval"), of("refuse")]).outcome == "refuse"
    assert combine(NO_RULE, [of("allow"), of("require_approval")]).outcome == "require_approval"
    assert combine(NO_RULE, [of("allow")]).outcome == "allow"
    assert combine(NO_RULE, []) == Verdict("allow", "no approval_policy")


def test_an_allowing_rule_waives_what_the_tool_asks_for() -> None:
    own = OwnRule("amount > 5", True, Approve(groups=("finance",)))
    assert combine(own, [of("allow", "small")]) == Verdict("allow", "small v1: true")
    assert combine(IRREVERSIBLE, [of("allow", "small")]).outcome == "allow"
    assert combine(IRREVERSIBLE, []).outcome == "require_approval"


def test_what_a_tool_asks_for_is_asked_for_as_well_unless_it_is_waived() -> None:
    own = OwnRule("amount > 5", True, Approve(groups=("finance",), quorum=2))
    both = combine(own, [of("require_approval", "legal", groups=("legal",))])
    assert both.approve is not None
    assert (both.approve.groups, both.approve.quorum) == (("legal", "finance"), 2)
    assert both.rule == "legal v1: true; the tool's own: amount > 5"
    waived = combine(own, [of("require_approval", "legal", groups=("legal",)), of("allow", "b")])
    assert waived.approve == Approve(groups=("legal",))


def test_who_signs_what_is_irreversible_is_the_rule_s_to_say() -> None:
    asked = of("require_approval", approve_by=timedelta(days=3), groups=("marketing",))
    assert combine(IRREVERSIBLE, [asked]).approve == asked.rule.approve


def test_a_rule_that_failed_counts_and_says_why() -> None:
    found = combine(NO_RULE, [of("refuse", "big", "there is no 'amount'")])
    assert found.outcome == "refuse"
    assert found.rule == "big v1: true (could not be evaluated: there is no 'amount')"


def test_nobody_may_stand_in_for_a_group_unless_every_rule_says_so() -> None:
    hour = timedelta(hours=1)
    with_board = Approve(groups=("a",), escalate_to=("board", "ceo"), escalate_after=hour)
    other = Approve(groups=("b",), escalate_to=("board",), escalate_after=2 * hour)
    both = combine_signatures([with_board, other])
    assert (both.escalate_to, both.escalate_after) == (("board",), 2 * hour)
    assert combine_signatures([with_board, Approve()]).escalate_to == ()
    assert combine_signatures([with_board, Approve()]).escalate_after is None


def test_the_first_reminder_counts() -> None:
    soon, late = timedelta(minutes=5), timedelta(hours=5)
    asked = [Approve(remind_after=late), Approve(remind_after=soon), Approve()]
    assert combine_signatures(asked).remind_after == soon


def test_the_line_that_says_which_rules_asked_is_bounded() -> None:
    rules = [
        Match(PolicyRule(name=f"r{n:02}", version=1, outcome="refuse", when="x" * 1999))
        for n in range(30)
    ]
    told = combine(NO_RULE, rules).rule
    assert len(told) <= 2_000
    assert all(f"r{n:02} v1" in told for n in range(3))


@pytest.mark.parametrize("own", [NO_RULE, IRREVERSIBLE])
def test_one_rule_s_signatures_are_that_rule_s(own: OwnRule) -> None:
    asked = of("require_approval", groups=("finance",), escalate_to=("board",))
    assert combine(own, [asked]).approve == asked.rule.approve
