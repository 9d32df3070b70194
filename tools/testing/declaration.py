"""Whether a tool is what it declares: its effect, its keys, its look-up, its transaction.

Guarantees: each finding names the field that is not so, what was seen and the fix; a
probe of which nothing can be concluded finds nothing.
Does not prove a declaration right: a provider may behave otherwise tomorrow, and how long
it keeps a key cannot be tried.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from django.core.checks import ERROR

from tools import registry
from tools.canonical import canonical_json
from tools.checks import check_tools
from tools.declarations import EffectType
from tools.spec import ToolSpec
from tools.testing.bench import Bench, Intended
from tools.testing.blindness import probe_blindness
from tools.testing.lanes import Case
from tools.testing.probing import LookedUp, call_and_roll_back, call_once, look_up_around
from tools.testing.report import Finding, Row, one_line
from tools.testing.scale import Scale

REMOTE_WRITES: Final = (
    EffectType.IDEMPOTENT_WRITE,
    EffectType.NON_IDEMPOTENT_WRITE,
    EffectType.IRREVERSIBLE,
)


def check_declared(spec: ToolSpec) -> list[Finding]:
    """What the system checks say of this tool."""
    with registry.isolated_registry():
        registry.register(spec)
        messages = check_tools()
    return [
        Finding(
            name=str(message.id),
            field="@tool",
            says=message.msg.rstrip("."),
            fix=message.hint or "",
            level="error" if message.level >= ERROR else "note",
        )
        for message in messages
    ]


def check_undisturbed(spec: ToolSpec, row: Row) -> list[Finding]:
    """What a call shows that nothing happens to."""
    effects = row.effects or 0
    if row.ended != "COMMITTED":
        return [
            Finding(
                name="cannot_be_called",
                field="arguments",
                says=f"an undisturbed call ended as {row.ended}: {row.why}",
                fix="give arguments that the provider accepts, and see that it runs",
            )
        ]
    if spec.effect_type is EffectType.READ and effects:
        return [
            Finding(
                name="read_has_an_effect",
                field="effect_type",
                says=f"a READ left {effects} effects, and a READ is called again at any time",
                fix="declare IDEMPOTENT_WRITE or NON_IDEMPOTENT_WRITE",
            )
        ]
    if spec.effect_type is not EffectType.READ and not effects:
        return [
            Finding(
                name="no_effect_seen",
                field="count_effects",
                says="an undisturbed call returned a value, and no effect was counted",
                fix="raise what is no success; count at a provider outside this process, or rows",
            )
        ]
    if effects > 1:
        return [
            Finding(
                name="two_effects_of_one_call",
                field="function",
                says=f"one undisturbed call made {effects} effects",
                fix="make one request per call, and switch the client's own retries off",
            )
        ]
    return []


# -- Keys -----------------------------------------------------------------------------


def probe_keys(bench: Bench, scale: Scale) -> Case[list[Finding]]:
    """Send the same key twice, and once more with other arguments."""
    if bench.spec.effect_type is not EffectType.IDEMPOTENT_WRITE:
        return []
    intended = bench.intend()
    for _ in range(2):
        yield from call_once(bench, intended, seconds=scale.timeout)
    if (effects := bench.count(intended)) > 1:
        return [
            Finding(
                name="key_is_ignored",
                field="effect_type",
                says=f"sent twice under the same key, it made {effects} effects",
                fix="send call.idempotency_key where the provider reads it; if it reads none, "
                'declare NON_IDEMPOTENT_WRITE and idempotency_support="none"',
            )
        ]
    if bench.spec.idempotency_support != "key":
        return []
    return (yield from _probe_mismatch(bench, scale, intended))


def _probe_mismatch(bench: Bench, scale: Scale, intended: Intended) -> Case[list[Finding]]:
    other = replace(intended, arguments=bench.new_arguments())
    if other.arguments == intended.arguments:
        return []
    before = bench.count(other)
    tried = yield from call_once(bench, other, seconds=scale.timeout)
    if bench.count(other) > before:
        says = "the same key with other arguments made another effect"
    elif tried.kind == "Committed":
        says = "the same key with other arguments is answered as if that had been done"
    else:
        return []
    return [
        Finding(
            name="mismatch_is_silent",
            field="idempotency_support",
            says=says,
            fix="nothing here sends other arguments under one key; see that nobody else does",
            level="note",
        )
    ]


# -- Look-ups -------------------------------------------------------------------------


def probe_look_ups(bench: Bench, scale: Scale) -> Case[list[Finding]]:
    """Look up nothing, an effect, and another operation with the same arguments.

    Then, if it was found, ask again over a network that does not work.
    """
    spec = bench.spec
    if spec.reconcile_handler is None or spec.effect_type not in REMOTE_WRITES:
        return []
    nothing, intended = bench.intend(), bench.intend()
    seen = yield from look_up_around(
        bench,
        nothing=nothing,
        intended=intended,
        other=bench.intend(intended.arguments),
        seconds=scale.timeout,
    )
    # Without an effect there is nothing that it should have found.
    is_there = bench.count(intended) > 0
    found = [*_of_what_is_not(spec, seen), *(_of_what_is(spec, seen) if is_there else ())]
    if is_there and seen.found_after is not None:
        found += yield from probe_blindness(bench, scale, there=intended, nothing=nothing)
    return found


def _of_what_is_not(spec: ToolSpec, seen: LookedUp) -> Iterator[Finding]:
    if seen.of_nothing == "committed":
        yield Finding(
            name="look_up_invents",
            field="reconcile_handler",
            says="it says committed of an operation that never was",
            fix="ask for call.operation_id or call.idempotency_key, and compare what comes back",
        )
    # Where a natural id makes two calls one effect, that effect is the other's too.
    elif seen.of_other == "committed" and spec.idempotency_support != "natural_id":
        yield Finding(
            name="look_up_of_another",
            field="reconcile_handler",
            says="it reports the effect of another operation with the same arguments",
            fix="ask for the operation's id or key, not for its arguments",
        )


def _of_what_is(spec: ToolSpec, seen: LookedUp) -> Iterator[Finding]:
    if seen.found_after is None:
        said = {"not_found": "it says not found", "failed": f"it failed: {seen.why}"}
        yield Finding(
            name="look_up_misses",
            field="reconcile_handler",
            says=f"of an effect that is there {said.get(seen.last, f'it cannot say: {seen.why}')}",
            fix="look where the effect is, at the primary, with an id that the tool has sent",
        )
        return
    is_search = spec.provider is not None and spec.provider.lookup == "search"
    if seen.misses and not is_search:
        yield Finding(
            name="look_up_lags",
            field="Provider.lookup",
            says=f"it found an effect only {seen.found_after:.1f} s after the answer",
            fix='ask the primary and not an index; or declare lookup="search", and a '
            "settle_window longer than the lag",
        )
    if seen.answer is not None and not _same(seen.answer, seen.found):
        yield Finding(
            name="results_differ",
            field="reconcile_handler",
            says=f"the tool gave {_short(seen.answer)} (result, reference), "
            f"the look-up {_short(seen.found)}",
            fix="build both from the same fields, so that a run goes on alike after either",
        )


def _same(one: Any, other: Any) -> bool:
    return canonical_json(one) == canonical_json(other)


def _short(value: Any) -> str:
    return one_line(canonical_json(value).decode(), limit=160)


# -- Transactions ---------------------------------------------------------------------


def probe_rollback(bench: Bench, scale: Scale) -> Case[list[Finding]]:
    """Undo the transaction that a TRANSACTIONAL tool was called in."""
    if bench.spec.effect_type is not EffectType.TRANSACTIONAL:
        return []
    intended = bench.intend()
    yield from call_and_roll_back(bench, intended, seconds=scale.timeout)
    if not bench.count(intended):
        return []
    return [
        Finding(
            name="survives_rollback",
            field="effect_type",
            says="its effect is there although the transaction was rolled back",
            fix="write through Django's default connection and none of its own; what lies "
            "outside is a NON_IDEMPOTENT_WRITE, or an IDEMPOTENT_WRITE by a natural id",
        )
    ]
