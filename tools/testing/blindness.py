"""What a look-up says when it cannot see: asked over a network that does not work.

A look-up that takes its own error for "there is nothing" is the most dangerous of all wrong
declarations: in an outage of the provider it settles that a second effect may be made.

Guarantees: a finding only where the network was really met, and where what was said is not
so: "not found" of an effect that is there, or "committed" of an operation that never was.
Does not see clients that bypass Python's sockets, nor pipes: of those nothing is said.
"""

from typing import Final

from tools.testing.bench import Bench, Intended
from tools.testing.lanes import Case
from tools.testing.network import answer_unavailable, refuse_connections, swallow_answers
from tools.testing.probing import look_up_over
from tools.testing.report import Finding
from tools.testing.scale import Scale

# A network, what is noted where it was met, and what it does, in words.
NETWORKS: Final = (
    (refuse_connections, "connect", "its connection is refused"),
    (swallow_answers, "cut", "its answer is lost"),
    (answer_unavailable, "cut", "it is answered with a 503"),
)


def probe_blindness(
    bench: Bench, scale: Scale, *, there: Intended, nothing: Intended
) -> Case[list[Finding]]:
    """Look up an effect that is there, and an operation that never was, and see neither."""
    for network, met_by, how in NETWORKS:
        seen = yield from look_up_over(
            bench, there=there, nothing=nothing, seconds=scale.timeout, network=network
        )
        if not seen.met[met_by]:
            continue
        # What finds the effect by a way around the broken network tells no lie.
        if seen.of_there == "not_found":
            said = "not found of an effect that is there"
        elif seen.of_nothing == "committed":
            said = "committed of an operation that never was"
        else:
            continue
        return [
            Finding(
                name="look_up_hides_errors",
                field="reconcile_handler",
                says=f"when {how} it says {said}",
                fix="let the error out, or return Reconciled.indeterminate",
            )
        ]
    return []
