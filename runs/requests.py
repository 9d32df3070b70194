"""What callers send: JSON bodies and query parameters, read strictly.

Guarantees: a body is at most `AGENTOPS_PAYLOAD_BYTES` of UTF-8 JSON without repeated
names; an unknown field or parameter is refused, with the nearest known one. NaN and
unstorable text pass here, so that the command can name the very place.

Does not know what a value means; commands and queries do.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

from django.conf import settings
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from runs.errors import InvalidInput, RunsError
from runs.models import TEXT_LIMIT
from runs.paging import LARGEST_PAGE
from runs.resolution import Outcome
from tools.errors import Problem
from tools.redaction import bound_text

SHOWN: Final = 80
LONGEST_NUMBER: Final = 40

Body = TypeVar("Body", bound=BaseModel)


class MalformedJson(RunsError):
    """Text that should be JSON is not."""

    def __init__(self, *, field: str, why: str) -> None:
        self.field, self.why = field, why
        self.fix = "Send one JSON value in UTF-8."
        super().__init__(f"{field}: this is no JSON: {why}. {self.fix}")


class TooLarge(RunsError):
    """A body is longer than what is ever read."""

    def __init__(self, *, field: str, limit: int) -> None:
        self.field, self.limit = field, limit
        self.fix = "Store the rest elsewhere and refer to it."
        super().__init__(f"{field}: it is larger than {limit} bytes. {self.fix}")


class InvalidRequest(RunsError):
    """Fields of a body do not fit; `problems` has one entry for each."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class StartRun(BaseModel):
    """The body of `POST runs/`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    agent: str = Field(max_length=100, description="a name from `GET agents/`")
    objective: str = Field(default="", description="the goal in words")
    input: Any = Field(default=None, description="any JSON value; an empty object if left out")
    labels: dict[str, str] = Field(default_factory=dict, description="to find the run by")
    priority: int | None = Field(
        default=None, description="-100 to 100, higher goes first; the agent's if left out"
    )


class CallOperation(BaseModel):
    """The body of `POST operations/`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tool: str = Field(max_length=100, description="a name from `GET tools/`")
    arguments: dict[str, Any] = Field(description="as the tool's schema has them")
    run: str | None = Field(
        default=None, description="a run of an external agent; without one the call is its own run"
    )
    thread: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="your own name of a run, which is started where there is none",
    )
    step: int | None = Field(
        default=None, ge=0, le=2**31 - 1, description="the step in your agent's own counting"
    )
    action: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="names the call within the step: with the run it names the operation",
    )
    agent: str | None = Field(
        default=None, max_length=100, description="the external agent to act for; `external`"
    )
    rationale: str = Field(
        default="", max_length=4_000, description="why, for whoever has to approve it"
    )
    wait_seconds: float | None = Field(
        default=None,
        ge=0,
        le=60,
        allow_inf_nan=False,
        description="wait so long for the call to be settled; without it, until it is settled or "
        "known to take long",
    )


class Finish(BaseModel):
    """The body of `POST runs/{run_id}/finish/`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    result: Any = Field(default=None, description="any JSON value: what the run came to")
    error: str = Field(
        default="",
        max_length=TEXT_LIMIT,
        description="why it did not reach its goal; it fails then",
    )


class Resolve(BaseModel):
    """The body of `POST operations/{operation_id}/resolve/`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    outcome: Outcome = Field(
        description="committed: it happened; not_committed: it did not, send it again with the "
        "same id; rejected: it did not and must not"
    )
    evidence: str = Field(
        max_length=TEXT_LIMIT, description="how this is known; stands in the journal"
    )
    external_ref: str | None = Field(
        default=None, max_length=255, description="what the provider calls the effect; if committed"
    )
    result: Any = Field(default=None, description="any JSON value; if committed")


class JsonBody(BaseParser):
    """Reads a request's body with `read_json`."""

    media_type = "application/json"

    def parse(
        self,
        stream: Any,
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The body's value. Raises TooLarge or MalformedJson."""
        limit = settings.AGENTOPS_PAYLOAD_BYTES
        # One byte more tells a body that just fits from one that goes on.
        raw = stream.read(limit + 1)
        if len(raw) > limit:
            raise TooLarge(field="body", limit=limit)
        return read_json(raw, field="body")


def read_json(raw: bytes | str, *, field: str) -> Any:
    """The value of a JSON text. NaN and Infinity pass. Raises MalformedJson."""
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        return json.loads(text, object_pairs_hook=_without_repeats)
    except RecursionError as error:
        raise MalformedJson(field=field, why="it is nested too deeply") from error
    except ValueError as error:
        raise MalformedJson(field=field, why=bound_text(str(error), 200)) from error


def read_json_option(given: str | None, *, option: str) -> Any:
    """What a command's option says: a JSON text, or `@FILE` that holds one; None without it.

    Raises MalformedJson, or InvalidInput for a file that cannot be read.
    """
    if given is None:
        return None
    if not given.startswith("@"):
        return read_json(given, field=option)
    try:
        raw = Path(given[1:]).read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(
            field=option, value=ascii(given[:SHOWN]), fix=f"It cannot be read: {why}."
        ) from error
    return read_json(raw, field=option)


def read_body(body: Any, shape: type[Body]) -> Body:
    """A body as `shape` has it. Raises InvalidRequest."""
    try:
        return shape.model_validate(body)
    except ValidationError as error:
        known = list(shape.model_fields)
        problems = [_problem(entry, known) for entry in error.errors(include_url=False)]
        # The cause would show whole values.
        raise InvalidRequest(problems) from None


class Query:
    """The query parameters of one request, each of them known."""

    def __init__(self, request: Request, *, known: Collection[str]) -> None:
        """Raises InvalidInput for a parameter that is not `known`, `cursor` or `page_size`."""
        self._given = request.query_params
        names = [*known, "cursor", "page_size"]
        for name in self._given:
            if name not in names:
                raise InvalidInput(
                    field=ascii(name[:SHOWN]).strip("'"),
                    value="this parameter",
                    fix=_nearest(name, names),
                )

    def text(self, name: str) -> str | None:
        """The one value of a parameter, None without it. Raises InvalidInput for several."""
        values = self._given.getlist(name)
        if len(values) > 1:
            raise InvalidInput(field=name, value=f"{len(values)} values", fix="Give it once.")
        return values[0] if values else None

    def texts(self, name: str) -> list[str]:
        """Every value of a parameter that may be repeated."""
        return list(self._given.getlist(name))

    def truth(self, name: str) -> bool | None:
        """True, false or None. Raises InvalidInput."""
        match (self.text(name) or "").lower(), self.text(name):
            case _, None:
                return None
            case (("true" | "1"), _):
                return True
            case (("false" | "0"), _):
                return False
            case given, _:
                raise InvalidInput(
                    field=name, value=ascii(given[:SHOWN]), fix="Write true or false."
                )

    def seconds(self, name: str, *, most: float) -> float:
        """A number of seconds from 0 to `most`; 0 without it. Raises InvalidInput."""
        given = self.text(name)
        if given is None:
            return 0.0
        try:
            # Its beginning alone may be another number.
            seconds = float(given) if len(given) <= LONGEST_NUMBER else -1.0
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= most:
            raise InvalidInput(
                field=name,
                value=ascii(given[:SHOWN]),
                fix=f"Give a number of seconds from 0 to {most:g}.",
            )
        return seconds

    def page_size(self, default: int) -> int:
        """How many items a page may have. Raises InvalidInput."""
        given = self.text("page_size")
        if given is None:
            return default
        if not (given.isascii() and given.isdigit() and 1 <= int(given[:6]) <= LARGEST_PAGE):
            raise InvalidInput(
                field="page_size",
                value=ascii(given[:SHOWN]),
                fix=f"Give a whole number from 1 to {LARGEST_PAGE}.",
            )
        return int(given)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Readers disagree on which of two amounts counts, so neither does.
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name[:SHOWN]!a} is given twice in one object")
        found[name] = value
    return found


def _problem(entry: Any, known: Sequence[str]) -> Problem:
    field = bound_text(".".join(_places(entry["loc"])) or "body", 200)
    match entry["type"]:
        case "missing":
            return Problem(field, "", "it is required")
        case "extra_forbidden":
            return Problem(field, "", _nearest(field, known))
        case "model_type" | "model_attributes_type":
            return Problem(field, "", "send a JSON object")
    return Problem(field, bound_text(ascii(entry["input"]), SHOWN), entry["msg"])


def _places(loc: Sequence[str | int]) -> Iterator[str]:
    for place in loc:
        yield str(place)


def _nearest(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]}? " if near else "Remove it. "
    return f"{hint}Possible are: {', '.join(known)}."
