"""`describe_mcp`: what an MCP server lists, beside what its file has, and put into it on request.

Guarantees: nothing is written without `--write` or `--pin`, and then nothing that people wrote is
touched. Exit status 1 says that a tool of the file differs from the server's, 2 that the server
or the file could not be read.
Does not call a tool.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from tools.errors import NotSent
from tools.mcp_servers.live import Comparison, Listed, ask_for_tools, compare, printable
from tools.mcp_servers.reading import UnreadableFile, read_file
from tools.mcp_servers.shape import ServerEntry
from tools.mcp_servers.writing import CannotWrite, add_tools, as_yaml, pin_schemas

SECONDS: Final = 60.0
COULD_NOT: Final = 2


class Command(BaseCommand):
    help = "List the tools of an MCP server of AGENTOPS_MCP_SERVERS, and what differs from the file"
    # A file that does not fit any more is one of the things that this command mends.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("server", metavar="SERVER", help="its name in the file")
        parser.add_argument(
            "--write", action="store_true", help="put new tools into the file, as the worst case"
        )
        parser.add_argument(
            "--pin",
            action="append",
            default=[],
            metavar="TOOL",
            help="agree to what the server now says of this tool, and pin that; repeatable",
        )
        parser.add_argument(
            "--seconds", type=float, default=SECONDS, help=f"to wait, {SECONDS:g} unless given"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        path = settings.AGENTOPS_MCP_SERVERS
        if path is None:
            raise CommandError("AGENTOPS_MCP_SERVERS names no file", returncode=COULD_NOT)
        name = options["server"]
        try:
            entry = _entry(path, name)
            found = compare(entry, ask_for_tools(entry, seconds=options["seconds"]))
            pinned = _chosen(found, options["pin"])
            if options["write"] and found.new:
                add_tools(path, name, found.new)
            if pinned:
                pin_schemas(path, name, pinned)
            if options["write"] or pinned:
                found = compare(_entry(path, name), _all(found))
        except (UnreadableFile, NotSent, CannotWrite) as error:
            self._print_for_hand(error, locals().get("found"))
            raise CommandError(printable(str(error)), returncode=COULD_NOT) from error
        self._print(name, found, as_json=options["json"])
        if found.stops:
            sys.exit(1)

    def _print_for_hand(self, error: Exception, found: Comparison | None) -> None:
        if isinstance(error, CannotWrite) and found is not None:
            self.stdout.write(as_yaml((*found.new, *found.changed, *found.reworded)))

    def _print(self, name: str, found: Comparison, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(_json(name, found), indent=2))
            return
        for side, tools in _sides(found).items():
            for tool in tools:
                said = f"  {printable(tool.problem)}" if tool.problem else ""
                self.stdout.write(f"{side:<9} {printable(tool.name)}{said}")
        for tool_name in found.gone:
            self.stdout.write(f"{'gone':<9} {printable(tool_name)}")
        if found.new:
            self.stdout.write("\n# Not in the file; --write puts this there, to be edited:")
            self.stdout.write(as_yaml(found.new))
        if found.changed or found.reworded:
            self.stdout.write("\n# What the server says now; --pin TOOL agrees to it:")
            self.stdout.write(as_yaml((*found.changed, *found.reworded)))


def _entry(path: Path, name: str) -> ServerEntry:
    servers = read_file(path).servers
    if name not in servers:
        known = ", ".join(sorted(servers)) or "none"
        raise UnreadableFile(path, [f"it has no server {name!r:.80}; there are: {known}"])
    return servers[name]


def _chosen(found: Comparison, names: list[str]) -> list[Listed]:
    there = {tool.name: tool for tool in (*found.changed, *found.reworded, *found.same)}
    if unknown := [name for name in names if name not in there]:
        known = ", ".join(sorted(there)) or "none"
        raise CommandError(
            f"--pin {unknown[0]!r:.80}: not a tool of the file that the server lists; "
            f"there are: {known}",
            returncode=COULD_NOT,
        )
    if unfit := [name for name in names if there[name].problem]:
        said = printable(f"--pin {unfit[0]}: {there[unfit[0]].problem}")
        raise CommandError(said, returncode=COULD_NOT)
    return [there[name] for name in dict.fromkeys(names)]


def _sides(found: Comparison) -> dict[str, tuple[Listed, ...]]:
    return {
        "same": found.same,
        "reworded": found.reworded,
        "changed": found.changed,
        "new": found.new,
        "unusable": found.unusable,
    }


def _all(found: Comparison) -> list[Listed]:
    return [tool for tools in _sides(found).values() for tool in tools]


def _json(name: str, found: Comparison) -> dict[str, Any]:
    sides = {side: [tool.name for tool in tools] for side, tools in _sides(found).items()}
    listed = {
        tool.name: {
            "description": tool.description,
            "input_schema": tool.input_schema,
            "hints": dict(tool.hints),
        }
        for tool in _all(found)
    }
    return {"server": name, **sides, "gone": list(found.gone), "listed": listed}
