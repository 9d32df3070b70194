"""What the policies of operators say of a call, beside the tool's own rule."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tools import Approve, Call, EffectType, Provider, policy_store, tool
from tools.policy import (
    Circumstances,
    PolicyDecision,
    Window,
    WindowQuery,
    check_expression,
    evaluate,
    find_stop,
)
from tools.policy_rules import PolicyRule
from tools.registry import isolated_registry
from tools.spec import ToolSpec

PAYMENTS = Provider(name="payments", account="acct_1", idempotency_support="key")
BY_SUPPORT = Circumstances(agent="support", requester="ada")


def spec_of(**declared: Any) -> ToolSpec:
    with isolated_registry():

        @tool(
            **{
                "name": "pay",
                "effect_type": EffectType.IDEMPOTENT_WRITE,
                "provider": PAYMENTS,
                **declared,
            }
        )
        def pay(
            call: Call,
            amount: Decimal = Decimal(1),
            agent: str = "an argument",
            note: str | None = None,
        ) -> None: ...

    return pay.spec  # type: ignore[attr-defined, no-any-return]


def rule(when: str = "true", outcome: Any = "refuse", name: str = "a", **given: Any) -> PolicyRule:
    return PolicyRule(**{"version": 1, "when": when, "outcome": outcome, "name": name, **given})


def judge(
    *rules: PolicyRule,
    spec: ToolSpec | None = None,
    around: Circumstances = BY_SUPPORT,
    **arguments: Any,
) -> PolicyDecision:
    spec = spec or spec_of()
    with policy_store.only(*rules):
        return evaluate(spec, spec.validate(arguments), around)


def counting(count: int, total: str = "0") -> tuple[Circumstances, list[WindowQuery]]:
    asked: list[WindowQuery] = []

    def read(query: WindowQuery) -> Window:
        asked.append(query)
        return Window(count, Decimal(total))

    return Circumstances(agent="support", requester="ada", read_window=read), asked


# -- Which calls a rule is about --------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "applies"),
    [
        ({}, True),
        ({"tool": "pay", "provider": "payments", "agent": "support"}, True),
        ({"tool": "look"}, False),
        ({"provider": "mail"}, False),
        ({"agent": "fulfil"}, False),
    ],
)
def test_a_rule_is_about_the_calls_that_all_its_selectors_choose(
    chosen: dict[str, str], applies: bool
) -> None:
    assert judge(rule(**chosen)).outcome == ("refuse" if applies else "allow")


def test_a_rule_sees_the_arguments_and_the_circumstances() -> None:
    around = Circumstances(agent="support", requester="ada", confidence=0.5)
    for when in (
        "arguments.amount == 7.5",
        "tool == 'pay' && effect_type == 'IDEMPOTENT_WRITE'",
        "provider == 'payments' && account == 'acct_1'",
        "agent == 'support' && requester == 'ada' && confidence < 0.6",
        "arguments.agent == 'an argument'",
    ):
        assert judge(rule(when), around=around, amount="7.5").rule == f"a v1: {when}"
        assert judge(rule(f"!({when})"), around=around, amount="7.5").outcome == "allow"


def test_arguments_have_their_names_where_one_tool_is_chosen() -> None:
    assert judge(rule("amount > 5", tool="pay"), amount="5").outcome == "allow"
    assert judge(rule("amount > 5", tool="pay"), amount="6").outcome == "refuse"
    # Without one they have none, and what cannot be evaluated matches.
    assert "could not be evaluated" in judge(rule("amount > 5"), amount="1").rule


def test_the_tool_s_own_rule_sees_the_circumstances_too() -> None:
    spec = spec_of(approval_policy=Approve(when="agent == 'support' && amount > 5"))
    assert judge(spec=spec, amount="6").outcome == "require_approval"
    assert judge(spec=spec, amount="6", around=Circumstances(agent="b")).outcome == "allow"


def test_a_confidence_that_nobody_gave_is_null() -> None:
    unsure = "confidence == null || confidence < 0.7"
    assert judge(rule(unsure)).outcome == "refuse"
    assert judge(rule(unsure), around=Circumstances(confidence=0.9)).outcome == "allow"
    assert "could not be evaluated" in judge(rule("confidence < 0.7")).rule


def test_a_confidence_that_is_no_number_fails_closed() -> None:
    around = Circumstances(confidence=float("nan"))
    for when in ("confidence < 0.7", "confidence == 0.7"):
        assert judge(rule(when), around=around).outcome == "refuse"


# -- Rules that fail --------------------------------------------------------------------


@pytest.mark.parametrize(
    "when", ["amout > 1", "arguments.amout > 1", "amount >", "amount", "note > 5", "1 / 0 > 1"]
)
def test_a_rule_that_cannot_be_evaluated_counts_unless_it_would_allow(when: str) -> None:
    strict = Approve(when="true", groups=("finance",))
    for outcome in ("refuse", "require_approval"):
        found = judge(rule(when, outcome, tool="pay"))
        assert found.outcome == outcome
        assert "could not be evaluated" in found.rule
    spec = spec_of(approval_policy=strict)
    assert judge(rule(when, "allow", tool="pay"), spec=spec).outcome == "require_approval"


def test_arguments_that_do_not_fit_fail_every_rule() -> None:
    spec = spec_of()
    with policy_store.only(rule("amount > 5", tool="pay"), rule("true", "allow", "b")):
        assert evaluate(spec, {"amount": "many"}).outcome == "refuse"


def test_the_value_of_a_secret_is_in_no_sentence() -> None:
    spec = spec_of(sensitive=("amount",))
    many = "500." + "0" * 30 + "1"
    found = judge(rule("arguments.amount > 1"), spec=spec, amount=many)
    assert found.outcome == "refuse"
    assert "500.000" not in found.rule


def test_an_amount_that_a_double_cannot_hold_fails_closed() -> None:
    assert judge(rule("arguments.amount > 500"), amount="500." + "0" * 30 + "1").outcome == "refuse"


# -- Irreversible -----------------------------------------------------------------------


def test_what_cannot_be_undone_needs_a_signature_unless_a_policy_allows_it() -> None:
    spec = spec_of(effect_type=EffectType.IRREVERSIBLE)
    assert judge(spec=spec).outcome == "require_approval"
    assert judge(rule("amount < 10", "allow", tool="pay"), spec=spec).outcome == "allow"
    assert judge(rule("amount < 10", "allow", tool="pay"), spec=spec, amount="11").outcome == (
        "require_approval"
    )
    assert judge(rule("amont < 10", "allow", tool="pay"), spec=spec).outcome == "require_approval"


# -- Windows ----------------------------------------------------------------------------


def windowed(when: str, **given: Any) -> PolicyRule:
    return rule(when, **{"window_seconds": 300, "window_money": "amount", **given})


def test_a_rule_counts_what_the_kernel_counted() -> None:
    when = "window.count > 20 || window.total > 500"
    for count, total, outcome in (
        (20, "500", "allow"),
        (21, "0", "refuse"),
        (1, "500.01", "refuse"),
    ):
        around, asked = counting(count, total)
        found = judge(windowed(when, window_by="requester"), around=around)
        assert found.outcome == outcome
        assert found.counts
        assert asked == [WindowQuery(tool="pay", seconds=300, by="requester", money="amount")]


def test_no_window_is_read_where_the_call_decides_already() -> None:
    around, asked = counting(21)
    found = judge(windowed("arguments.amount > 5.0 && window.count > 20"), around=around)
    assert (found.outcome, found.counts) == ("allow", False)
    found = judge(windowed("window.count > 20 || arguments.amount < 5.0"), around=around)
    assert (found.outcome, found.counts) == ("refuse", False)
    assert asked == []


def test_no_window_is_read_once_a_rule_refuses() -> None:
    around, asked = counting(21)
    found = judge(rule(name="no"), windowed("window.count > 20"), around=around)
    assert (found.outcome, found.counts, asked) == ("refuse", False, [])


def test_no_window_is_read_for_an_allowance_that_nothing_needs() -> None:
    around, asked = counting(1)
    spare = windowed("window.count < 5", outcome="allow")
    assert judge(spare, around=around).counts is False
    assert asked == []
    spec = spec_of(effect_type=EffectType.IRREVERSIBLE)
    found = judge(spare, spec=spec, around=around)
    assert (found.outcome, found.counts, len(asked)) == ("allow", True, 1)


def test_two_rules_over_one_window_read_it_once() -> None:
    around, asked = counting(5)
    judge(windowed("window.count > 9"), windowed("window.count > 8", name="b"), around=around)
    assert len(asked) == 1


def test_a_window_that_nobody_reads_fails_closed() -> None:
    found = judge(windowed("window.count > 20"))
    assert (found.outcome, found.counts) == ("refuse", True)


def test_there_is_no_total_of_nothing() -> None:
    around, _ = counting(1)
    found = judge(windowed("window.total > 500", window_money=""), around=around)
    assert found.outcome == "refuse"


def test_a_total_that_a_double_cannot_hold_fails_closed() -> None:
    around, _ = counting(1, "500." + "0" * 30 + "1")
    assert judge(windowed("window.total > 500"), around=around).outcome == "refuse"


def test_an_amount_that_cannot_be_added_up_fails_closed() -> None:
    def read(query: WindowQuery) -> Window:
        raise ValueError("amount is no amount")

    found = judge(windowed("window.total > 500"), around=Circumstances(read_window=read))
    assert found.outcome == "refuse"
    assert "amount is no amount" in found.rule
    spare = windowed("window.total < 500", outcome="allow")
    spec = spec_of(effect_type=EffectType.IRREVERSIBLE)
    held = judge(spare, spec=spec, around=Circumstances(read_window=read))
    assert held.outcome == "require_approval"


def test_a_database_that_does_not_answer_is_not_taken_for_a_rule_that_failed() -> None:
    def read(query: WindowQuery) -> Window:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        judge(windowed("window.count > 20"), around=Circumstances(read_window=read))


# -- Versions ---------------------------------------------------------------------------


def test_a_version_names_every_rule_that_is_about_the_call_and_no_other() -> None:
    about = rule("amount > 1000", tool="pay")
    version = judge(about).version
    assert version != judge().version
    assert judge(about, rule("true", name="mail", tool="mail")).version == version
    assert judge(about, rule("true", name="other", agent="fulfil")).version == version
    assert judge(rule("amount > 1000", tool="pay"), amount="2000").version == version
    assert judge(rule("amount > 1000", tool="pay", version=2)).version != version
    assert judge(about, rule("false", name="b")).version != version


def test_a_version_does_not_depend_on_the_order_of_rules() -> None:
    one, two = rule(name="a"), rule(name="b")
    assert judge(one, two).version == judge(two, one).version


def test_the_tool_s_own_rule_is_part_of_the_version() -> None:
    loose, strict = (
        spec_of(approval_policy=Approve(when="amount > 500", quorum=quorum)) for quorum in (1, 2)
    )
    assert judge(rule(), spec=loose).version != judge(rule(), spec=strict).version


def test_nothing_is_stopped_where_no_stop_is_known() -> None:
    with policy_store.only():
        assert find_stop(spec_of()) == ""


# -- Checking ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "window", "told"),
    [
        ("window.count > 1", (), "window"),
        ("window.total > 1", ("count",), "unknown window.total"),
        ("window.cuont > 1", ("count", "total"), "unknown window.cuont"),
        ("agnt == 'a'", (), "unknown argument agnt"),
        ("true || " * 300 + "true", (), "characters"),
    ],
)
def test_what_a_rule_may_not_ask_for_is_told(when: str, window: tuple[str, ...], told: str) -> None:
    assert told in (check_expression(when, ("amount",), window=window) or "")


@pytest.mark.parametrize(
    "when",
    [
        "window.count > 20 || window.total > 500",
        "agent == 'a' && requester != 'b' && (confidence == null || confidence < 0.5)",
        "has(arguments.amount) && arguments['amount'] > 5",
        "effect_type in ['IRREVERSIBLE'] && account == '' && provider == '' && tool != ''",
    ],
)
def test_what_a_rule_may_ask_for_passes(when: str) -> None:
    assert check_expression(when, ("amount",), window=("count", "total")) is None


def test_every_expression_of_the_how_to_page_is_a_good_one() -> None:
    page = (
        Path(__file__).resolve().parents[3] / "docs" / "how-to" / "write-a-policy.md"
    ).read_text()
    shown = [
        line for block in re.findall(r"```cel\n(.*?)```", page, re.S) for line in block.splitlines()
    ]
    assert len(shown) > 4
    names, window = ("amount", "order_id"), ("count", "total")
    assert [one for one in shown if check_expression(one, names, window=window) is not None] == []
