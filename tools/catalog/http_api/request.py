"""Which request a call becomes, planned and checked when the tool is declared.

Guarantees: every argument goes to a declared place and each place is filled once; the same call
gives the same bytes; scheme and host come from the declaration or its variable alone.
Does not send: `tool.py` does.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode, urlsplit

from tools.call import Call
from tools.canonical import canonical_json
from tools.catalog.arguments import Check
from tools.catalog.http_api.provider import HttpApi
from tools.catalog.http_api.templates import (
    PathTemplate,
    Template,
    as_text,
    check_query,
    check_scalar,
    check_segment,
    nest,
)
from tools.errors import NotSent

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
WITH_BODY = ("POST", "PUT", "PATCH")


class BadPlan(ValueError):
    """A declaration that does not say where everything goes."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A planned request. `body` maps places to arguments, `also` places to texts."""

    method: Method
    path: PathTemplate
    query: Mapping[str, str]
    body: Mapping[str, str]
    also: Mapping[str, Template]

    def address(self, call: Call) -> str:
        """Path and query."""
        given = [(place, call.arguments[name]) for place, name in self.query.items()]
        pairs = [(place, as_text(value)) for place, value in given if value is not None]
        return self.path.fill_path(call) + (f"?{urlencode(pairs)}" if pairs else "")

    def content(self, call: Call) -> bytes | None:
        """The JSON body in its canonical form, None for a method that has none."""
        if self.method not in WITH_BODY:
            return None
        flat = {place: call.arguments[name] for place, name in self.body.items()}
        flat |= {place: text.fill(call) for place, text in self.also.items()}
        return canonical_json(nest(flat))

    @property
    def checks(self) -> dict[str, Check]:
        """What its place asks of an argument, by name."""
        checks: dict[str, Check] = dict.fromkeys(self.query.values(), check_query)
        for template in self.also.values():
            checks |= dict.fromkeys(template.names, check_scalar)
        return checks | dict.fromkeys(self.path.names, check_segment)


def plan_request(
    *,
    method: Method,
    path: str,
    names: Sequence[str],
    query: Sequence[str],
    body: Mapping[str, str] | None,
    also: Mapping[str, str],
) -> Request:
    """The request of a tool with the arguments `names`. Raises BadPlan, InvalidTemplate."""
    template = PathTemplate(path, names=names)
    placed = {*template.names, *query}
    rest = [name for name in names if name not in placed]
    asked = {name: name for name in query}
    if method not in WITH_BODY:
        if body or also:
            raise BadPlan(f"a {method} has no body")
        asked |= {name: name for name in rest}
        body = {}
    elif body is None:
        body = {name: name for name in rest}
    for name in (*query, *body.values()):
        if name not in names:
            raise BadPlan(f"there is no argument {name}")
    if unsent := sorted(set(rest) - {*body.values(), *asked}):
        raise BadPlan(f"nothing sends {', '.join(unsent)}")
    if overlap := _overlap([*body, *also]):
        raise BadPlan(f"two things go to {overlap} of the body")
    texts = {place: Template(text, names=names) for place, text in also.items()}
    return Request(method=method, path=template, query=asked, body=body, also=texts)


def base_url(api: HttpApi) -> str:
    """Scheme, host and prefix without a slash at the end. Raises NotSent."""
    name = api.base_url_env
    url = os.environ.get(name, "").strip() if name else api.base_url
    if problem := problem_of_base(url):
        raise NotSent(f"{f'the environment variable {name}' if name else 'base_url'} {problem}")
    return url.rstrip("/")


def problem_of_base(url: str) -> str:
    """What is wrong with a base address, "" if nothing is."""
    try:
        place = urlsplit(url)
        usable = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError:
        usable = False
    if not usable:
        return "is no address like https://host/prefix"
    if "@" in place.netloc or place.query or place.fragment:
        return "holds more than scheme, host and prefix"
    return ""


def _overlap(places: Sequence[str]) -> str:
    """A place that is named twice, or lies inside another one."""
    for number, one in enumerate(places):
        for other in places[number + 1 :]:
            if one == other or f"{one}.".startswith(f"{other}.") or other.startswith(f"{one}."):
                return one
    return ""
