"""What is refused when an HTTP tool is declared, because it could not be recovered later.

Guarantees: each refusal names the tool, the problem and the fix; nothing is asked of the API.
Does not check promises: whether an API keeps its word about keys shows in the author's kit.
"""

from collections.abc import Collection, Sequence

from tools.catalog.http_api.answers import Says
from tools.catalog.http_api.look_up import FindInList, FindOne, LookUp
from tools.catalog.http_api.provider import HttpApi
from tools.catalog.http_api.request import Method, problem_of_base
from tools.catalog.http_api.templates import InvalidTemplate, PathTemplate, Template
from tools.declarations import EffectType
from tools.errors import InvalidTool

# Timed out, too early, too many: the provider says that it is busy, not that it refuses.
OF_THE_MOMENT = (408, 425, 429)
CONFLICT = 409


def check_declaration(
    *,
    name: str,
    api: HttpApi,
    effect_type: EffectType,
    method: Method,
    succeeded: Collection[int],
    refused: Sequence[Says],
) -> None:
    """Raises InvalidTool."""
    if bool(api.base_url) == bool(api.base_url_env):
        raise InvalidTool(name, problem="its API has no one address", fix="give one of the two")
    if api.base_url and (problem := problem_of_base(api.base_url)):
        raise InvalidTool(name, problem=f"base_url {problem}", fix="correct it")
    if effect_type.is_write and method == "GET":
        fix = "use the method that the API documents for a change, or declare it a READ"
        raise InvalidTool(name, problem="a GET may be repeated by anybody on its way", fix=fix)
    if not succeeded or not all(200 <= status < 300 for status in succeeded):
        raise InvalidTool(name, problem="only a 2xx is a success", fix="correct `succeeded`")
    for says in refused:
        if problem := _problem_of_refusal(says):
            raise InvalidTool(name, problem=f"a refusal by {says.status} {problem}", fix=_REFUSAL)
    for says in api.not_executed:
        if not (400 <= says.status < 500 or says.status == 503):
            problem = f"{says.status} does not say that nothing was executed"
            raise InvalidTool(name, problem=problem, fix="correct `not_executed`")


def check_look_up(*, name: str, look_up: LookUp, names: Collection[str]) -> None:
    """Raises InvalidTool for one that names what is not there, or would adopt anything."""
    try:
        PathTemplate(look_up.path, names=names)
        for text in (*look_up.query.values(), *look_up.ours.values()):
            Template(text, names=names)
    except InvalidTemplate as error:
        raise InvalidTool(name, problem=f"look_up: {error}", fix="correct it") from error
    if unknown := sorted(set(look_up.same.values()) - set(names)):
        problem = f"look_up compares with no argument: {', '.join(unknown)}"
        raise InvalidTool(name, problem=problem, fix="name arguments in `same`")
    named_in = (look_up.path, *look_up.query.values())
    is_named = any(
        mark in text for text in named_in for mark in ("{operation_id}", "{idempotency_key}")
    )
    if isinstance(look_up, FindOne) and not (look_up.ours or look_up.same or is_named):
        problem = "look_up would take whatever stands at its path for its own"
        raise InvalidTool(name, problem=problem, fix="say in `ours` or `same` what makes it ours")
    if isinstance(look_up, FindInList) and not look_up.ours:
        problem = "look_up would take any item of the list for its own"
        raise InvalidTool(name, problem=problem, fix="say in `ours` what tells them apart")


_REFUSAL = "list only answers that the provider documents as final and without effect"


def _problem_of_refusal(says: Says) -> str:
    if says.status in OF_THE_MOMENT:
        return "is one of the moment"
    if says.status == CONFLICT and not says.fields:
        return "may also say that the key is in use: name a field that tells them apart"
    if 200 <= says.status < 300 and not says.fields:
        return "is a success: name a field that tells them apart"
    if not (200 <= says.status < 300 or 400 <= says.status < 500):
        return "does not say that nothing was done"
    return ""
