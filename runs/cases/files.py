"""Reading and writing the file of a case, as YAML or as JSON by the ending of its name.

Guarantees: a file that cannot be read as a case is refused with the place and the fix; one that
exists is never written over, because people edit what is expected in it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, assert_never

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_jsonable_python

from runs.cases.shapes import Case
from runs.errors import InvalidInput, RunsError
from tools.redaction import bound_text

LARGEST_FILE: Final = 16 * 1024 * 1024
NAMED_PROBLEMS: Final = 3

Format = Literal["yaml", "json"]
# Twenty times faster than those in Python; libyaml is in every wheel.
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FORMATS: Final[dict[str, Format]] = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes what it meets twice twice: a name for it would be refused when it is read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class UnreadableCase(RunsError):
    """A file holds no case."""

    def __init__(self, *, path: Path, why: str, fix: str) -> None:
        self.path, self.why, self.fix = path, why, fix
        super().__init__(f"{path}: this is no case: {why}. {fix}")


class _Dataset(BaseModel):
    """The document around the case. Evaluators are for those who load it with Pydantic Evals."""

    model_config = ConfigDict(extra="forbid")

    json_schema: str | None = Field(default=None, alias="$schema")
    name: str | None = None
    cases: list[Case] = Field(min_length=1, max_length=1)
    evaluators: list[Any] = []
    report_evaluators: list[Any] = []


def load_case(path: Path | str) -> Case:
    """The case in a file. Raises UnreadableCase."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise UnreadableCase(
                path=path,
                why=f"it has {size} bytes",
                fix=f"A case has at most {LARGEST_FILE}; export fewer steps with --through.",
            )
        document = _parse(path.read_text(encoding="utf-8"), _format_of(path))
        return _Dataset.model_validate(document).cases[0]
    except OSError as error:
        raise UnreadableCase(
            path=path, why=f"it cannot be read ({error.strerror})", fix="Name a file that exists."
        ) from error
    except InvalidInput as error:
        why = "its name does not say in which form it is"
        raise UnreadableCase(path=path, why=why, fix=error.fix) from error
    except ValidationError as error:
        raise UnreadableCase(
            path=path,
            why=_say_problems(error),
            fix="Mend it there, or write the file anew with export_case.",
        ) from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UnreadableCase(
            path=path,
            why=bound_text(" ".join(str(error).split()), 300),
            fix="Mend it there, or write the file anew with export_case.",
        ) from error


def write_case(case: Case, path: Path) -> None:
    """Write a new file. Raises InvalidInput where it cannot be, or exists."""
    text = render_case(case, _format_of(path))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InvalidInput(
            field="--output",
            value=ascii(str(path)),
            fix="It exists and may have been edited: give another name, or remove it first.",
        ) from error
    except OSError as error:
        raise InvalidInput(
            field="--output",
            value=ascii(str(path)),
            fix=f"It cannot be written: {error.strerror}.",
        ) from error


def render_case(case: Case, form: Format) -> str:
    """The text of a case's file."""
    plain = case.model_dump(mode="json", exclude_defaults=True)
    document = {"cases": [plain]}
    match form:
        case "yaml":
            return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100)
        case "json":
            return json.dumps(document, indent=2) + "\n"
        case _ as never:
            assert_never(never)


def _format_of(path: Path) -> Format:
    try:
        return _FORMATS[path.suffix.lower()]
    except KeyError:
        raise InvalidInput(
            field="--output",
            value=ascii(path.name),
            fix="End the name in .yaml, .yml or .json.",
        ) from None


def _parse(text: str, form: Format) -> Any:
    if form == "json":
        return json.loads(text)
    # A few lines that repeat each other ten times are gigabytes.
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=_Loader)):
        raise ValueError("it has an alias (*name); write out what that stands for")
    # YAML reads an unquoted 2026-11-30 as a date, where a case has text.
    return to_jsonable_python(yaml.load(text, Loader=_Loader))  # noqa: S506  a safe one


def _say_problems(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False)
    said = [f"{_say_place(one['loc'])}: {one['msg']}" for one in problems[:NAMED_PROBLEMS]]
    if len(problems) > NAMED_PROBLEMS:
        said.append(f"and {len(problems) - NAMED_PROBLEMS} more")
    return bound_text("; ".join(said), 500)


def _say_place(place: Sequence[str | int]) -> str:
    return ".".join(str(part) for part in place) or "the document"
