"""What a policy says, and everything that is wrong with it before it is saved.

Guarantees: every problem is told at once, with its field, its value and the fix; a name that
nothing here has (a tool, a provider, an agent, a group, an argument) is one, because a policy
about it would be silently about nothing.

Does not see whether a condition means what its author thinks.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final

from django.contrib.auth.models import Group

from runs.agents import all_agents
from runs.models import NAME, TEXT_LIMIT
from tools.declarations import Approve
from tools.errors import Problem
from tools.expression_types import find_never_equal
from tools.expressions import ARGUMENTS, RESERVED, WINDOW, check_expression, fields_of, variables_of
from tools.models import LONGEST_WINDOW, ToolPolicy
from tools.policy_rules import unsignable
from tools.redaction import bound_text
from tools.registry import all_tools
from tools.spec import ToolSpec

OUTCOMES: Final = ("allow", "require_approval", "refuse")
MOST_SIGNERS: Final = 50
# A stop's name has a colon, so no policy can be taken for one.
_NAME: Final = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,{NAME - 1}}}")


@dataclass(frozen=True, kw_only=True)
class PolicyText:
    """One policy, apart from its name, version, author and reason."""

    outcome: str
    tool: str = ""
    provider: str = ""
    agent: str = ""
    when: str = "true"
    groups: tuple[str, ...] = ()
    quorum: int = 1
    approve_by: timedelta = Approve.approve_by
    execute_by: timedelta = Approve.execute_by
    escalate_to: tuple[str, ...] = ()
    escalate_after: timedelta | None = None
    remind_after: timedelta | None = None
    window_seconds: int | None = None
    window_by: str = "agent"
    window_money: str = ""

    @classmethod
    def of(cls, row: ToolPolicy) -> "PolicyText":
        """What a row says."""
        given = {name: getattr(row, name) for name in cls.__dataclass_fields__}
        return cls(**{**given, "groups": tuple(row.groups), "escalate_to": tuple(row.escalate_to)})

    @property
    def approve(self) -> Approve:
        return Approve(
            groups=self.groups,
            quorum=self.quorum,
            approve_by=self.approve_by,
            execute_by=self.execute_by,
            escalate_to=self.escalate_to,
            escalate_after=self.escalate_after,
            remind_after=self.remind_after,
        )


def problems_of(text: PolicyText) -> list[Problem]:
    """Everything that is wrong with a policy. One query, for the groups."""
    return [
        *_outcome(text),
        *_selectors(text),
        *_signatures(text),
        *_window(text),
        *_condition(text),
    ]


def problems_of_name(name: str) -> Iterator[Problem]:
    if not _NAME.fullmatch(name):
        fix = f"Use 1 to {NAME} small letters, digits, - and _, a letter or digit first."
        yield Problem("name", _shown(name), fix)


def problems_of_reason(reason: str) -> Iterator[Problem]:
    if not reason.strip() or len(reason) > TEXT_LIMIT or not is_storable(reason):
        fix = f"Say why, in 1 to {TEXT_LIMIT} characters: it is kept with the version."
        yield Problem("reason", _shown(reason), fix)


def is_storable(text: str) -> bool:
    """Whether PostgreSQL takes it: no NUL, no lone surrogate."""
    return bound_text(text, max(len(text), 1)) == text


def unknown_name(field: str, name: str, known: Iterable[str]) -> Problem:
    """That nothing is called `name`, with the nearest that something is called."""
    names = sorted(known)
    near = get_close_matches(name[:NAME], names, n=1)
    if near:
        fix = f"Did you mean {near[0]!r}?"
    elif names:
        fix = f"There are: {bound_text(', '.join(names), 300)}."
    else:
        fix = "None is known here; list the Django apps that hold yours in AGENTOPS_APPS."
    return Problem(field, _shown(name), fix)


def _outcome(text: PolicyText) -> Iterator[Problem]:
    if text.outcome not in OUTCOMES:
        yield Problem("outcome", _shown(text.outcome), f"Use one of: {', '.join(OUTCOMES)}.")


def _selectors(text: PolicyText) -> Iterator[Problem]:
    specs = {spec.name: spec for spec in all_tools()}
    providers = {spec.provider_name for spec in specs.values()} - {""}
    agents = {agent.name: agent for agent in all_agents()}
    if text.tool and text.tool not in specs:
        yield unknown_name("tool", text.tool, specs)
    if text.provider and text.provider not in providers:
        yield unknown_name("provider", text.provider, providers)
    if text.agent and text.agent not in agents:
        yield unknown_name("agent", text.agent, agents)
    spec = specs.get(text.tool)
    if spec and text.provider in providers - {spec.provider_name}:
        own = spec.provider_name or "none"
        yield Problem(
            "provider",
            _shown(text.provider),
            f"Leave it empty: the provider of {spec.name} is {own}, so this would never apply.",
        )
    agent = agents.get(text.agent)
    if agent and text.tool in specs and text.tool not in agent.tools:
        yield Problem(
            "agent",
            _shown(text.agent),
            f"Name an agent that uses {text.tool}: this one does not, so it would never apply.",
        )


def _signatures(text: PolicyText) -> Iterator[Problem]:
    if text.outcome == "require_approval":
        for field, told, fix in unsignable(text.approve):
            yield Problem(field, "", f"{told} {fix}")
        if text.quorum > MOST_SIGNERS:
            yield Problem("quorum", str(text.quorum), f"Ask for at most {MOST_SIGNERS} people.")
        yield from _groups(text)
        return
    said = {
        "groups": text.groups,
        "quorum": text.quorum != 1,
        "approve_by": text.approve_by != Approve.approve_by,
        "execute_by": text.execute_by != Approve.execute_by,
        "escalate_to": text.escalate_to,
        "escalate_after": text.escalate_after,
        "remind_after": text.remind_after,
    }
    for field in (field for field, given in said.items() if given):
        yield Problem(field, "", "Leave it out: nobody is asked unless approval is required.")


def _groups(text: PolicyText) -> Iterator[Problem]:
    if not (text.groups or text.escalate_to):
        return
    known = set(Group.objects.values_list("name", flat=True))
    for field in ("groups", "escalate_to"):
        given: tuple[str, ...] = getattr(text, field)
        for name in given:
            if name not in known:
                found = unknown_name(field, name, known)
                make = "Make the group in the admin, or by `create_token … --groups`."
                yield Problem(field, found.value, f"{found.fix} {make}" if known else make)
        if repeated := [name for name in known if given.count(name) > 1]:
            yield Problem(field, _shown(repeated[0]), "Name each group once.")


def _window(text: PolicyText) -> Iterator[Problem]:
    longest = int(LONGEST_WINDOW.total_seconds())
    if text.window_by not in ToolPolicy.By.values:
        words = ", ".join(ToolPolicy.By.values)
        yield Problem("window_by", _shown(text.window_by), f"Use one of: {words}.")
    if text.window_seconds is None:
        if text.window_money:
            yield Problem(
                "window_money",
                _shown(text.window_money),
                "Say window_seconds too, or leave it out.",
            )
        return
    if not 1 <= text.window_seconds <= longest:
        yield Problem("window_seconds", str(text.window_seconds), f"Use 1 to {longest} seconds.")
    if text.window_money:
        specs = _selected(text)
        yield from _argument(text, "window_money", text.window_money, specs)
        for spec in specs:
            schema = spec.arguments_schema()["properties"].get(text.window_money)
            if schema is not None and not _is_number(schema):
                fix = f"Name an argument that is a number: this one of {spec.name} is none."
                yield Problem("window_money", _shown(text.window_money), fix)
                break


def _is_number(schema: Mapping[str, Any]) -> bool:
    """Whether a JSON schema takes numbers; a decimal's takes them beside its text."""
    kinds = [schema, *schema.get("anyOf", ())]
    return any(kind.get("type") in ("number", "integer") for kind in kinds)


def _condition(text: PolicyText) -> Iterator[Problem]:
    if not is_storable(text.when):
        yield Problem("when", _shown(text.when), "Remove the NUL or the lone surrogate.")
        return
    specs = _selected(text)
    names: Collection[str] = ()
    if text.tool:
        named = next((spec for spec in all_tools() if spec.name == text.tool), None)
        # What an unknown tool's arguments are called is not the condition's mistake.
        names = named.argument_names if named else _names_in(text.when)
    window = ("count", *(("total",) if text.window_money else ()))
    problem = check_expression(
        text.when, names, window=window if text.window_seconds is not None else ()
    )
    if problem is not None:
        yield Problem("when", _shown(text.when), f"{problem}.{_hint(text, problem)}")
        return
    if text.window_seconds is not None and WINDOW not in variables_of(text.when):
        fix = "Ask for window.count or window.total, or leave window_seconds out."
        yield Problem("when", _shown(text.when), fix)
    for name in sorted(fields_of(text.when, ARGUMENTS)):
        yield from _argument(text, "when", name, specs)
    if problem := find_never_equal(text.when, specs):
        yield Problem("when", _shown(text.when), f"{problem}.")


def _names_in(when: str) -> Collection[str]:
    try:
        return variables_of(when) - RESERVED
    except ValueError:
        return ()


def _hint(text: PolicyText, problem: str) -> str:
    if "unknown argument" in problem and not text.tool:
        return " Arguments are arguments.x unless the policy names one tool."
    if "window" in problem and text.window_seconds is None:
        return " Say window_seconds."
    return ""


def _argument(
    text: PolicyText, field: str, name: str, specs: Sequence[ToolSpec]
) -> Iterator[Problem]:
    """That `name` is no argument of the chosen tools, or not of all and not asked for first."""
    if not specs:
        # What is wrong with the selectors is told there.
        return
    having = [spec for spec in specs if name in spec.argument_names]
    if not having:
        known: Collection[str] = {known for spec in specs for known in spec.argument_names}
        yield unknown_name(field, name, known)
    elif len(having) < len(specs) and not (field == "when" and _asks_first(text.when, name)):
        without = next(spec.name for spec in specs if spec not in having)
        fix = "Choose one tool or one provider"
        if field == "when":
            fix += f", or write: has(arguments.{name}) && …"
        yield Problem(field, _shown(name), f"{without} has no argument of that name. {fix}.")


def _asks_first(when: str, name: str) -> bool:
    bare = re.sub(r"\s+", "", when)
    return (
        f"has(arguments.{name})" in bare
        or re.search(rf"""['"]{re.escape(name)}['"]inarguments""", bare) is not None
    )


def _selected(text: PolicyText) -> list[ToolSpec]:
    """The tools that the selectors choose, as far as this process knows."""
    allowed = next((agent.tools for agent in all_agents() if agent.name == text.agent), None)
    return [
        spec
        for spec in all_tools()
        if text.tool in ("", spec.name)
        and text.provider in ("", spec.provider_name)
        and (allowed is None or spec.name in allowed)
    ]


def _shown(value: str) -> str:
    return ascii(bound_text(value, 80))
