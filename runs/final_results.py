"""Final results: whether one fits the model that the agent declares for it.

Guarantees: what fits is handed back as plain JSON in the form that the model gives it, with its
defaults filled in.

Does not bound its size: whoever stores it does.
"""

from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from runs.errors import ResultDoesNotFit

MOST_PROBLEMS = 10


def fit_result(result: Any, output: type[BaseModel] | None) -> Any:
    """The result as `output` gives it; as it is where there is none. Raises ResultDoesNotFit.

    What else a validator of its own raises says no more than that: its words may hold values.
    """
    if output is None:
        return result
    try:
        # As JSON, which is what it is stored as: a strict model takes a date's text for a date.
        fitting = output.model_validate_json(to_json(result, inf_nan_mode="constants"))
        return fitting.model_dump(mode="json")
    except ValidationError as error:
        # Without what was given: it may be a secret, and the field and the fix say enough.
        problems = [
            f"{'.'.join(map(str, one['loc'])) or 'result'}: {one['msg']}"
            for one in error.errors(include_url=False, include_input=False)[:MOST_PROBLEMS]
        ]
        raise ResultDoesNotFit(output=output.__name__, problems=problems) from error
    except Exception as error:
        problems = [f"it was refused ({type(error).__name__})"]
        raise ResultDoesNotFit(output=output.__name__, problems=problems) from error
