"""Whoever may not decide is refused everywhere: every entry point against every rule."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db.models.functions import Now

from approvals.errors import Inactive, NobodyThere, NotInGroup, SomebodyElse
from runs.access import READ, Actor
from runs.errors import NotPermitted
from runs.models import AgentRun, Approval
from tests.database.approval_doors import DONE, DOORS, Door
from tests.database.approving import (
    PRINT,
    Start,
    acting,
    ask,
    held_run,
    let_run_out,
    person,
    say,
    written,
)

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]


# -- The rules: each prepares a request and the one who is not to decide on it ---------


def requester(run: AgentRun) -> tuple[Approval, User]:
    user = person("robin")
    return ask(run, requester="robin", requester_user=user), user


def requester_under_another_name(run: AgentRun) -> tuple[Approval, User]:
    user = person("robin")
    approval = ask(run, requester="shop bot", requester_user=user)
    User.objects.filter(pk=user.pk).update(username="robin.2")
    user.refresh_from_db()
    return approval, user


def requester_by_name_alone(run: AgentRun) -> tuple[Approval, User]:
    return ask(run, requester="robin"), person("robin")


def starter(run: AgentRun) -> tuple[Approval, User]:
    user = person("robin")
    AgentRun.objects.filter(id=run.id).update(created_by="robin", created_by_user=user)
    return ask(run), user


def starter_under_another_name(run: AgentRun) -> tuple[Approval, User]:
    user = person("robin")
    AgentRun.objects.filter(id=run.id).update(created_by="nightly job", created_by_user=user)
    return ask(run), user


def starter_by_name_alone(run: AgentRun) -> tuple[Approval, User]:
    AgentRun.objects.filter(id=run.id).update(created_by="robin")
    return ask(run), person("robin")


def superuser_who_started_it(run: AgentRun) -> tuple[Approval, User]:
    user = person("root", is_superuser=True)
    AgentRun.objects.filter(id=run.id).update(created_by_user=user)
    return ask(run), user


def in_no_group(run: AgentRun) -> tuple[Approval, User]:
    return ask(run, groups=["finance"]), person("robin", "football")


def superuser_in_no_group(run: AgentRun) -> tuple[Approval, User]:
    return ask(run, groups=["finance"]), person("root", is_superuser=True)


def second_group_before_the_escalation(run: AgentRun) -> tuple[Approval, User]:
    return ask(run, groups=["finance"], escalate_to=["board"]), person("robin", "board")


def no_permission(run: AgentRun) -> tuple[Approval, User]:
    return ask(run), person("robin", may_decide=False)


def inactive(run: AgentRun) -> tuple[Approval, User]:
    return ask(run), person("robin", is_active=False)


def another_fingerprint(run: AgentRun) -> tuple[Approval, User]:
    return ask(run, fingerprint="v1:" + "b" * 64), person()


def ran_out(run: AgentRun) -> tuple[Approval, User]:
    approval = ask(run)
    let_run_out(approval)
    return approval, person()


def decided(run: AgentRun) -> tuple[Approval, User]:
    approval = ask(run)
    say(approval, person(), "deny")
    return approval, person()


def superseded(run: AgentRun) -> tuple[Approval, User]:
    approval = ask(run)
    ask(run, supersedes=approval)
    return approval, person()


RULES: list[tuple[Callable[[AgentRun], tuple[Approval, User]], set[str]]] = [
    (requester, {"OwnRequest"}),
    (requester_under_another_name, {"OwnRequest"}),
    (requester_by_name_alone, {"OwnRequest"}),
    (starter, {"OwnRequest"}),
    (starter_under_another_name, {"OwnRequest"}),
    (starter_by_name_alone, {"OwnRequest"}),
    (superuser_who_started_it, {"OwnRequest"}),
    (in_no_group, {"NotInGroup"}),
    (superuser_in_no_group, {"NotInGroup"}),
    (second_group_before_the_escalation, {"NotInGroup"}),
    (no_permission, {"NoPermission"}),
    # Some doors do not even let them come so far.
    (inactive, {"Inactive", "Unauthorized"}),
    (another_fingerprint, {"AnotherFingerprint"}),
    (ran_out, {"RanOut"}),
    (decided, {"AlreadyDecided"}),
    (superseded, {"Superseded"}),
]
_doors = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)


@pytest.mark.parametrize(("rule", "said"), RULES, ids=lambda one: getattr(one, "__name__", ""))
def test_every_door_refuses_whom_a_rule_excludes(
    start: Start, rule: Callable[[AgentRun], tuple[Approval, User]], said: set[str]
) -> None:
    approval, user = rule(held_run(start))
    before = written(approval)
    # One after the other, since a refusal leaves no trace.
    for door in DOORS:
        assert door.drive(approval, user, PRINT) in said, door.name
        assert written(approval) == before, door.name


def test_no_door_lets_anybody_sign_twice(start: Start) -> None:
    approval, user = ask(held_run(start), quorum=2), person()
    say(approval, user)
    before = written(approval)
    for door in DOORS:
        if door.says == "decide":
            assert door.drive(approval, user, PRINT) == "AlreadySigned", door.name
            assert written(approval) == before, door.name


@_doors
def test_every_door_opens_for_whom_no_rule_excludes_and_once(start: Start, door: Door) -> None:
    approval = ask(held_run(start), groups=["finance"], escalate_to=["board"], escalated_at=Now())
    assert door.drive(approval, person("robin", "board"), PRINT) == DONE
    approval.refresh_from_db()
    assert approval.status == ("approved" if door.says == "decide" else "superseded")
    assert approval.verdicts.get().via == door.via
    assert approval.decided_by == "robin"
    before = written(approval)
    for user in (person("sam", "finance"), person("kim", "board")):
        assert door.drive(approval, user, PRINT) in {"AlreadyDecided", "Superseded"}
    assert written(approval) == before


def test_nobody_signs_for_somebody_else(start: Start) -> None:
    approval = ask(held_run(start))
    before = written(approval)
    with pytest.raises(SomebodyElse):
        say(approval, person("robin"), actor=acting(person("sam")))
    with pytest.raises(NobodyThere):
        say(approval, None)
    reader = person()
    with pytest.raises(NotPermitted):
        say(approval, reader, actor=Actor("reader", frozenset({READ}), user_id=reader.pk))
    assert written(approval) == before


def test_a_user_counts_as_they_are_now_not_as_they_were_when_they_came(start: Start) -> None:
    approval = ask(held_run(start), groups=["finance"])
    before = written(approval)
    left, gone = person("robin", "finance"), person("sam", "finance")
    assert left.has_perm("runs.decide_approval")
    left.groups.clear()
    User.objects.filter(pk=gone.pk).update(is_active=False)
    with pytest.raises(NotInGroup):
        say(approval, left)
    with pytest.raises(Inactive):
        say(approval, gone)
    assert written(approval) == before


# -- That no door is missing from the table --------------------------------------------


def test_every_place_that_calls_the_commands_is_a_door_of_the_table() -> None:
    known = {(door.calls, door.says) for door in DOORS if door.calls is not None}
    assert set(_callers()) == known


def _callers() -> Iterator[tuple[str, str]]:
    """Every place in our code, but the commands' own module, that names one of the two."""
    for app in ("agentops", "approvals", "runs", "tools", "examples"):
        for path in sorted((ROOT / app).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if module != "approvals.commands":
                yield from _calls_in(ast.parse(path.read_text()), module)


def _calls_in(tree: ast.Module, module: str) -> Iterator[tuple[str, str]]:
    names: dict[str, str] = {}
    modules: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="approvals.commands", names=found):
                names |= {one.asname or one.name: one.name for one in found}
            case ast.ImportFrom(module="approvals", names=found):
                modules |= {one.asname or one.name for one in found if one.name == "commands"}
            case ast.Import(names=found):
                modules |= {
                    one.asname or one.name for one in found if one.name == "approvals.commands"
                }
    # Every mention counts, not calls alone: a function that is handed on is called elsewhere.
    for place, node in _walk(tree, ""):
        said = ""
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                said = names.get(name, "")
            case ast.Attribute(attr=name, value=value) if ast.unparse(value) in modules:
                said = name
        if said in ("decide", "propose"):
            yield f"{module}:{place}", said


def _walk(node: ast.AST, place: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        inside = place
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = f"{place}.{child.name}".lstrip(".")
        yield inside, child
        yield from _walk(child, inside)
