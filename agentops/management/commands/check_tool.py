"""Prove one tool before production: every fault, by real calls, on a database of its own.

Guarantees that nothing of a check stays here: it runs on an embedded PostgreSQL in a
temporary directory, and the project's own database and broker are not touched. Exit status
1 says that the tool is not sound, 2 that it could not be checked.

Does not undo what the tool does at its provider: point it at a sandbox.
"""

import importlib
import json
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

from agentops.embedded import EmbeddedError, running
from tools.errors import InvalidArguments, UnknownTool
from tools.registry import get_tool
from tools.spec import ToolSpec
from tools.testing import ALL, KitError, check
from tools.testing.catalogue import FAULTS, find_faults

COULD_NOT: Final = 2
NUMBER: Final = "{n}"
_LIBPQ: Final = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host"}


class CannotCheck(CommandError):
    """What was given on the command line cannot be used."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, returncode=COULD_NOT)


class Command(BaseCommand):
    help = "Run a tool under every crash and every lost answer, and print what its provider saw."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tool", nargs="?", metavar="NAME")
        parser.add_argument(
            "--arguments",
            metavar="JSON|@file|package.module:function",
            help=f"of every call; {NUMBER} in a text is the call's number, as a function gets it",
        )
        parser.add_argument(
            "--count",
            metavar="package.module:function",
            help="says how many effects the provider has for an operation",
        )
        parser.add_argument(
            "--prepare",
            metavar="package.module:function",
            help="called once, on the fresh database, for rows that the tool needs",
        )
        parser.add_argument(
            "--fault",
            action="append",
            default=[],
            metavar="FAULT",
            help="only this one, and no probe of the declaration; repeatable",
        )
        parser.add_argument("--list-faults", action="store_true", help="print the faults and end")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument("--yes", action="store_true", help="make the calls without asking")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list_faults"]:
            return self._list_faults(as_json=options["json"])
        spec = _tool(options["tool"])
        arguments = _arguments(options["arguments"])
        count = _function(options["count"], option="--count")
        prepare = _function(options["prepare"], option="--prepare") if options["prepare"] else None
        faults = options["fault"] or ALL
        try:
            # Before a server is started, and before anybody is asked.
            find_faults(faults)
            spec.validate(arguments(1))
            self._ask(spec, sure=options["yes"])
            with _scratch_database():
                if prepare is not None:
                    prepare()
                report = check(spec, arguments=arguments, count_effects=count, faults=faults)
        except (KitError, EmbeddedError, InvalidArguments) as error:
            raise CannotCheck(str(error)) from error
        text = json.dumps(report.to_json(), indent=2) if options["json"] else str(report)
        self.stdout.write(text)
        if not report.ok:
            sys.exit(1)

    def _list_faults(self, *, as_json: bool) -> None:
        told = {fault.name: fault.says for fault in FAULTS}
        if as_json:
            return self.stdout.write(json.dumps(told, indent=2))
        width = max(map(len, told))
        for name, says in told.items():
            self.stdout.write(f"{name:<{width}}  {says}")

    def _ask(self, spec: ToolSpec, *, sure: bool) -> None:
        where = f" at {spec.provider_name}" if spec.provider_name else ""
        warning = (
            f"This makes about forty real calls of {spec.name}{where}, with the credentials of "
            "this environment. Their effects stay."
        )
        self.stderr.write(warning)
        if sure:
            return
        if not sys.stdin.isatty():
            raise CannotCheck("nobody is here to agree to that; say --yes")
        if input("Make them? [y/N] ").strip().lower() not in ("y", "yes"):
            raise CannotCheck("nothing was called")


def _tool(name: str | None) -> ToolSpec:
    if not name:
        raise CannotCheck("give the NAME of a tool; list_tools shows them")
    try:
        return get_tool(name)
    except UnknownTool as error:
        raise CannotCheck(str(error)) from error


def _arguments(given: str | None) -> Callable[[int], Mapping[str, Any]]:
    if not given:
        raise CannotCheck("--arguments: give the arguments of a call, as JSON, @file or a function")
    if not given.startswith(("{", "@")):
        return _function(given, option="--arguments")
    try:
        text = Path(given[1:]).read_text() if given.startswith("@") else given
        raw = json.loads(text)
    except (OSError, ValueError) as error:
        raise CannotCheck(f"--arguments: {error}") from error
    if not isinstance(raw, dict):
        raise CannotCheck(f"--arguments: give an object, not {type(raw).__name__}")
    return lambda number: {name: _numbered(value, number) for name, value in raw.items()}


def _numbered(value: Any, number: int) -> Any:
    match value:
        case str():
            return value.replace(NUMBER, str(number))
        case dict():
            return {name: _numbered(item, number) for name, item in value.items()}
        case list():
            return [_numbered(item, number) for item in value]
        case _:
            return value


def _function(named: str | None, *, option: str) -> Callable[..., Any]:
    module, _, name = (named or "").partition(":")
    if not module or not name:
        raise CannotCheck(f"{option}: give package.module:function, not {named!r}")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise CannotCheck(f"{option}: {error}") from error
    if not callable(found):
        raise CannotCheck(f"{option}: {named} is no function")
    function: Callable[..., Any] = found
    return function


@contextmanager
def _scratch_database() -> Iterator[None]:
    """A fresh database with every app's tables, for this process, inside the block."""
    default = connections["default"]
    outside = dict(default.settings_dict)
    with (
        tempfile.TemporaryDirectory(
            prefix="agentops-check-", ignore_cleanup_errors=True
        ) as directory,
        running(Path(directory), broker=False) as stack,
    ):
        default.close()
        given = conninfo_to_dict(stack.database_url)
        default.settings_dict |= {
            name: str(given.get(key) or "") for name, key in {**_LIBPQ, "PORT": "port"}.items()
        }
        # Its pool, if there is one, leads to the other database.
        options = {**default.settings_dict["OPTIONS"]}
        options.pop("pool", None)
        default.settings_dict["OPTIONS"] = options
        try:
            call_command("migrate", verbosity=0, interactive=False)
            yield
        finally:
            connections.close_all()
            default.settings_dict |= outside
