"""How to find out at an HTTP API what became of an operation.

Guarantees: "not found" is said only of a complete answer in which nothing is this operation's;
what is found counts only if it carries what makes it ours, and only if it is what was asked for
(else a person is to compare); one request per look-up, from the API itself.
Does not know whether the API reads from its primary: do not point it at a search index.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import urlencode

from tools.call import Call
from tools.catalog.arguments import Check
from tools.catalog.http_api.answers import MISSING, Says, pick, read_reference
from tools.catalog.http_api.templates import (
    PathTemplate,
    Template,
    as_text,
    check_scalar,
    check_segment,
)
from tools.catalog.sending import UnreadableAnswer
from tools.reconciled import Reconciled
from tools.spec import ToolSpec


@dataclass(frozen=True, kw_only=True)
class FindOne:
    """GET of the one thing that the operation would have made, by a name known beforehand.

    `missing` are the answers documented for "does not exist". `item` is where the thing stands
    in the answer. `ours` maps its fields to templates ("{operation_id}"), `same` to arguments:
    what differs there is somebody else's, or another request's, and goes to a person.
    """

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[Says] = (Says(404),)
    item: str = ""
    ours: Mapping[str, str] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FindInList:
    """GET of a list, in which `ours` tells what this operation made.

    `items` is where the list stands ("" for the answer itself). `more` is the place that says
    whether there are further pages; None says that the API documents the answer as complete.
    """

    path: str
    ours: Mapping[str, str]
    more: str | None
    query: Mapping[str, str] = field(default_factory=dict)
    items: str = ""
    same: Mapping[str, str] = field(default_factory=dict)


LookUp = FindOne | FindInList


def look_up_address(find: LookUp, call: Call) -> str:
    """Path and query of the question."""
    names = tuple(call.arguments)
    pairs = [(name, Template(text, names=names).fill(call)) for name, text in find.query.items()]
    address = PathTemplate(find.path, names=names).fill_path(call)
    return address + (f"?{urlencode(pairs)}" if pairs else "")


def look_up_checks(find: LookUp | None, *, names: Sequence[str]) -> dict[str, Check]:
    """What its place in the question asks of an argument, by name."""
    if find is None:
        return {}
    checks: dict[str, Check] = {}
    for text in (*find.query.values(), *find.ours.values()):
        checks |= dict.fromkeys(Template(text, names=names).names, check_scalar)
    return checks | dict.fromkeys(PathTemplate(find.path, names=names).names, check_segment)


def judge_one(
    find: FindOne, said: Any, *, call: Call, spec: ToolSpec, reference: str
) -> Reconciled[Any]:
    """What an answer about one thing says of the operation; its result is the raw thing."""
    item = pick(said, find.item)
    if not isinstance(item, dict):
        raise UnreadableAnswer(f"there is no object at {find.item or 'its top'}")
    differing = [*_not_ours(find.ours, item, call), *_not_same(find.same, item, call, spec)]
    if differing:
        return _somebody_elses(differing)
    return Reconciled.committed(item, read_reference(item, reference))


def judge_list(
    find: FindInList, said: Any, *, call: Call, spec: ToolSpec, reference: str
) -> Reconciled[Any]:
    """What a list says of the operation; the result is its first raw item that is ours."""
    items = pick(said, find.items)
    if not isinstance(items, list):
        raise UnreadableAnswer(f"there is no list at {find.items or 'its top'}")
    # An API that ignores a filter lists everybody's.
    mine = [one for one in items if not _not_ours(find.ours, one, call)]
    if not mine:
        further = False if find.more is None else pick(said, find.more)
        if further is MISSING or further:
            return Reconciled.indeterminate("it is not on the first page, and there are more")
        return Reconciled.not_found()
    for one in mine:
        if differing := _not_same(find.same, one, call, spec):
            return _somebody_elses(differing)
    first, *others = mine
    also = [read_reference(one, reference) or "without a reference" for one in others]
    return Reconciled.committed(first, read_reference(first, reference), also=also)


def _not_ours(ours: Mapping[str, str], item: Any, call: Call) -> list[str]:
    names = tuple(call.arguments)
    return [
        place
        for place, text in ours.items()
        if not _reads(pick(item, place), Template(text, names=names).fill(call))
    ]


def _not_same(same: Mapping[str, str], item: Any, call: Call, spec: ToolSpec) -> list[str]:
    bound = spec.bind(call.arguments)
    return [
        place
        for place, name in same.items()
        if not _equals(pick(item, place), call.arguments[name], bound[name])
    ]


def _equals(found: Any, wanted: Any, bound: Any) -> bool:
    if found == wanted:
        return True
    if isinstance(bound, bool) or not isinstance(bound, int | float | Decimal):
        return isinstance(wanted, str) and _reads(found, wanted)
    try:
        # "42.00", "42.0" and 42 are one amount.
        return Decimal(str(found)) == Decimal(str(bound))
    except InvalidOperation:
        return False


def _reads(found: Any, text: str) -> bool:
    try:
        return as_text(found) == text
    except ValueError:
        return False


def _somebody_elses(differing: Sequence[str]) -> Reconciled[Any]:
    return Reconciled.indeterminate(
        f"something is there, and it is not what was asked for: {', '.join(differing)} differ"
    )
