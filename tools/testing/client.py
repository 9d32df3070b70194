"""What a tool's function and its client make of a network that does not work.

Guarantees: a finding only where the network was really met; "says_…" only where what the
tool said is not so.
Does not see clients that bypass Python's sockets, nor pipes: of those nothing is said.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from tools.declarations import EffectType
from tools.redaction import scrub
from tools.spec import ToolSpec
from tools.testing.bench import Bench
from tools.testing.declaration import REMOTE_WRITES
from tools.testing.lanes import Case
from tools.testing.network import hang_connections, refuse_connections, swallow_answers
from tools.testing.probing import OVERTIME_SECONDS, Tried, call_once, call_past_deadline
from tools.testing.report import Finding, Level
from tools.testing.scale import Scale

HANG_SECONDS: Final = 1.5
FIX_WAIT: Final = "give every request timeout=call.remaining, which raises when it is too late"
FIX_LIE: Final = (
    "let the library's error through: Rejected is for an answer that the provider documents "
    "as final and without effect, a value for one that proves the effect"
)


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A call over a network that did not work: `how`, what it came to, and what is there.

    `may_be_there`: the request may have taken effect for all that the tool could know.
    """

    how: str
    tried: Tried
    effects: int
    may_be_there: bool


def probe_deadline(bench: Bench, scale: Scale) -> Case[list[Finding]]:
    """Call it past its deadline, and before a provider that never answers."""
    spec = bench.spec
    if spec.effect_type is EffectType.TRANSACTIONAL:
        return []
    found: list[Finding] = []
    intended = bench.intend()
    late = yield from call_past_deadline(bench, intended, network=refuse_connections)
    if spec.effect_type in REMOTE_WRITES and (late.connects or bench.count(intended)):
        found.append(
            Finding(
                name="sends_after_deadline",
                field="function",
                says="it sends although its deadline is over, as a worker would that was "
                "stopped and replaced",
                fix=FIX_WAIT,
            )
        )
    intended = bench.intend()
    hung = yield from call_once(bench, intended, seconds=HANG_SECONDS, network=hang_connections)
    if hung.connects and not hung.came_back:
        found.append(
            Finding(
                name="ignores_deadline",
                field="function",
                says=f"given {HANG_SECONDS} s it waits {OVERTIME_SECONDS} s longer for a provider "
                "that does not answer",
                fix=FIX_WAIT,
            )
        )
    # A way around the broken network is no lie.
    effects = bench.count(intended)
    broken = Broken(how="nobody answers", tried=hung, effects=effects, may_be_there=True)
    return [*found, *_judge(spec, broken), *_exposed(spec, hung, intended.arguments)]


def probe_connections(bench: Bench, scale: Scale) -> Case[list[Finding]]:
    """Refuse its connections; then let its request arrive and reset its answer."""
    spec = bench.spec
    if spec.effect_type is EffectType.TRANSACTIONAL:
        return []
    found: list[Finding] = []
    for network, how in (
        (refuse_connections, "its connection is refused"),
        (swallow_answers, "its answer is lost"),
    ):
        intended = bench.intend()
        tried = yield from call_once(bench, intended, seconds=scale.timeout, network=network)
        arrives = network is swallow_answers
        if arrives and not tried.was_cut:
            continue
        broken = Broken(how=how, tried=tried, effects=bench.count(intended), may_be_there=arrives)
        found += [*_judge(spec, broken), *_exposed(spec, tried, intended.arguments)]
    return found


def _judge(spec: ToolSpec, broken: Broken) -> Iterator[Finding]:
    """Whether what the tool said is so, and whether it tried once."""
    tried, effects = broken.tried, broken.effects
    if not tried.connects:
        return
    level: Level = "error" if spec.effect_type.is_write else "note"
    match tried.kind:
        case "Committed" if not effects:
            name, said = "says_committed", "returns a value, and there is no effect"
        case "Refused" if effects:
            name, said = "says_rejected", "raises Rejected, and the effect is there"
        case "Refused" if not tried.was_cut:
            name, said = "says_rejected", "raises Rejected, which no provider has said"
        case "Unsent" if effects:
            name, said = "says_not_sent", "says that nothing was sent, and the effect is there"
        case _:
            name = said = ""
    if name:
        yield Finding(
            name=name,
            field="function",
            says=f"when {broken.how} it {said}",
            fix=FIX_LIE,
            level=level,
        )
    if tried.kind == "Unknown" and not broken.may_be_there:
        yield Finding(
            name="refused_is_unknown",
            field="function",
            says=f"when {broken.how} its outcome counts as unknown, and costs a look-up",
            fix="let the library's own error through or raise NotSent, and ask call.remaining "
            "once per request",
            level="note",
        )
    if tried.most_connects > 1:
        yield Finding(
            name="retries_by_itself",
            field="function",
            says=f"when {broken.how} its client connects {tried.most_connects} times in one call",
            fix="switch the client's own retries off: a hidden one is a send that nobody recorded",
            level=level if broken.may_be_there else "note",
        )


def _exposed(spec: ToolSpec, tried: Tried, arguments: Mapping[str, Any]) -> Iterator[Finding]:
    for text in tried.texts:
        plain = unquote(text)
        if scrub(plain, arguments, spec.sensitive) != plain:
            yield Finding(
                name="shows_sensitive",
                field="sensitive",
                says="a sensitive argument stands in the text of an exception, where logs and "
                "error trackers read it",
                fix="send it in a body or a header, not in an address, and keep it out of errors",
            )
            return
