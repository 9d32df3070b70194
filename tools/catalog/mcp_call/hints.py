"""A server's annotations beside the operator's declaration.

Guarantees: the declaration decides; a hint that calls the tool more dangerous than it was
declared is logged once per process.
Does not warn of hints that are missing, and does not believe those that reassure.
"""

import logging
from collections.abc import Iterator
from typing import Any

from tools.declarations import EffectType
from tools.spec import ToolSpec

logger = logging.getLogger(__name__)
_told: set[tuple[str, str]] = set()


def warn_of_contradictions(spec: ToolSpec, listing: Any) -> None:
    """Log what the server's listing of the tool says against its declaration."""
    for hint in contradictions(spec, listing.annotations):
        if (spec.name, hint) not in _told:
            _told.add((spec.name, hint))
            logger.warning(
                "the tool %s is declared %s, and its MCP server says %s",
                spec.name,
                spec.effect_type,
                hint,
            )


def contradictions(spec: ToolSpec, annotations: Any) -> Iterator[str]:
    """The hints that speak against the declaration in the dangerous direction."""
    if annotations is None:
        return
    if spec.effect_type is EffectType.READ:
        if annotations.read_only_hint is False:
            yield "readOnlyHint=false"
        if annotations.destructive_hint:
            yield "destructiveHint=true"
    if (
        spec.effect_type is EffectType.IDEMPOTENT_WRITE
        and spec.idempotency_support == "natural_id"
        and annotations.idempotent_hint is False
    ):
        yield "idempotentHint=false"
