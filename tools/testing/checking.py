"""The check itself: every fault, every probe, one report.

Guarantees: real calls of the tool, by real worker processes, on a real kernel; nothing is
kept of it but rows in the database that it ran on, and effects at the provider.
Does not undo those effects: give it a provider's sandbox.
"""

import importlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from runs.events import Name
from tools.registry import get_tool
from tools.spec import ToolSpec
from tools.testing.bench import Arguments, Bench, CountEffects, bench_for
from tools.testing.cases import run_case, run_noted
from tools.testing.catalogue import ALL, EVERY_COMMIT, NONE, Fault, at_every_commit, find_faults
from tools.testing.client import probe_connections, probe_deadline
from tools.testing.declaration import (
    check_declared,
    check_undisturbed,
    probe_keys,
    probe_look_ups,
    probe_rollback,
)
from tools.testing.diary import Diary
from tools.testing.lanes import Case, run_cases
from tools.testing.progress import showing
from tools.testing.report import Finding, Report, Row
from tools.testing.scale import SPARE_SECONDS, Scale, choose_scale, describe

LANES: Final = 8
PROBES: Final[tuple[Callable[[Bench, Scale], Case[list[Finding]]], ...]] = (
    probe_keys,
    probe_look_ups,
    probe_rollback,
    probe_deadline,
    probe_connections,
)


def check(
    tool: Callable[..., Any] | ToolSpec | str,
    *,
    arguments: Arguments,
    count_effects: CountEffects,
    faults: Iterable[str] = ALL,
    probes: bool | None = None,
    lanes: int = LANES,
) -> Report:
    """Run a tool under every fault and report what its provider saw.

    `tool` is a function decorated with `@tool`, its spec, or its name. `arguments` are the
    call's JSON arguments, or a function of a number (1, 2, …) that gives each call a
    business object of its own. `count_effects` is asked, in this process, how many effects
    the provider has for an `Intended` operation. The declaration is probed unless only
    some `faults` are asked for; `probes` says otherwise. It takes about half a minute.

    Raises KitError, InvalidArguments, and whatever the two functions raise.
    """
    spec = _spec_of(tool)
    chosen = find_faults(faults)
    wanted = len(chosen) == len(ALL) if probes is None else probes
    with (
        tempfile.TemporaryDirectory(prefix="agentops-kit-") as directory,
        bench_for(
            spec, arguments=arguments, count_effects=count_effects, directory=Path(directory)
        ) as bench,
    ):
        tried = _try_undisturbed(bench)
        findings = [*check_declared(spec), *check_undisturbed(spec, tried.row)]
        rows = [tried.row]
        can_be_called = tried.row.ended == "COMMITTED"
        if can_be_called:
            struck = list(_struck(chosen, commits=tried.commits))
            cases: list[Case[Row | list[Finding]]] = [
                run_case(bench, fault, tried.scale) for fault in struck
            ]
            if wanted:
                cases += [probe(bench, tried.scale) for probe in PROBES]
            with showing(f"checking {spec.name}", total=len(cases)) as done:
                results = run_cases(cases, lanes=lanes, on_done=lambda one: done(_name(one)))
            rows += [result for result in results if isinstance(result, Row)]
            findings += [one for result in results if isinstance(result, list) for one in result]
    return Report(
        tool=spec.name,
        effect_type=str(spec.effect_type),
        provider=spec.provider_name,
        scale=describe(spec, tried.scale),
        probed=wanted and can_be_called,
        rows=tuple(rows),
        findings=tuple(_once_each(findings)),
    )


@dataclass(frozen=True)
class _Undisturbed:
    row: Row
    scale: Scale
    commits: int


def _try_undisturbed(bench: Bench) -> _Undisturbed:
    """One call that nothing happens to: how long it takes decides the times of the others."""
    spec, diary = bench.spec, bench.new_diary()
    patient = choose_scale(spec, call_seconds=spec.timeout_policy.seconds)
    seconds = patient.timeout + SPARE_SECONDS
    case = run_noted(bench, NONE, patient, diary, seconds=seconds)
    (row,) = run_cases([case], lanes=1)
    assert row is not None, "nothing is late where there is no fault"
    _load(name for entry in diary.entries("loaded") for name in entry["modules"])
    commits = sum(entry["name"] == Name.COMMIT_DONE for entry in diary.entries("event"))
    scale = choose_scale(spec, call_seconds=_seconds(diary))
    return _Undisturbed(row=row, scale=scale, commits=commits)


def _load(modules: Iterable[str]) -> None:
    """Load here once what a worker loaded on first use, or every other would do so again."""
    for name in modules:
        # A name that is no module of its own is loaded by whoever made it.
        with suppress(Exception):
            importlib.import_module(name)


def _seconds(diary: Diary) -> float:
    """From the first send to its return."""
    sent = diary.entries("send")
    back = [*diary.entries("returned"), *diary.entries("raised")]
    return float(back[0]["at"] - sent[0]["at"]) if sent and back else 0.0


def _struck(chosen: list[Fault], *, commits: int) -> Iterator[Fault]:
    for fault in chosen:
        if fault.name == EVERY_COMMIT:
            yield from at_every_commit(commits)
        elif fault is not NONE:
            yield fault


def _spec_of(tool: Callable[..., Any] | ToolSpec | str) -> ToolSpec:
    if isinstance(tool, str):
        return get_tool(tool)
    spec = getattr(tool, "spec", tool)
    if not isinstance(spec, ToolSpec):
        raise TypeError(f"tool: {tool!r:.80} is no tool; give a function decorated with @tool")
    return spec


def _name(result: Row | list[Finding]) -> str:
    return result.fault if isinstance(result, Row) else "a probe of the declaration"


def _once_each(findings: list[Finding]) -> Iterator[Finding]:
    """The gravest finding of each name, errors first."""
    by_name: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda one: one.level):
        by_name.setdefault(finding.name, finding)
    yield from by_name.values()
