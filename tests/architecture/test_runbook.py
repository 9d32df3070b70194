"""Every command that somebody woken at night is told to type is one that can be typed."""

import re
import shlex
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandError

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "woken-at-night.md").read_text()
TYPED = sorted(set(re.findall(r"python manage\.py ([^`\n]+)", PAGE)))
# Named in passing: without what every call of it needs.
NAMED = sorted(set(re.findall(r"`([a-z]+_[a-z]+)((?: --[a-z-]+)*)`", PAGE)))


@pytest.mark.parametrize("line", TYPED)
def test_a_command_takes_what_it_is_given(line: str) -> None:
    name, *words = shlex.split(line)
    command = load_command_class(get_commands()[name], name)
    parser = command.create_parser("manage.py", name)
    try:
        parser.parse_args(words)
    except CommandError as error:
        pytest.fail(str(error))


def test_an_option_that_is_named_in_passing_is_there() -> None:
    seen = 0
    for name, options in NAMED:
        if name not in get_commands():
            continue
        parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
        known = {text for action in parser._actions for text in action.option_strings}
        assert set(options.split()) <= known, name
        seen += 1
    assert seen
    assert len(TYPED) > 20
