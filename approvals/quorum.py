"""Whether the signatures on an action are enough, and whose are missing.

Guarantees: enough means that as many distinct people signed as the quorum and the number of
groups ask for, and that every group is represented by a signer of its own: one person stands
for one group, however many they are in. Once a request was escalated, a signer from the
second group may stand for any. Pure: the same signatures always give the same answer.

Does not know who may sign at all, and reads nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Signer:
    """One person who approved, and the groups they stood for then."""

    name: str
    groups: frozenset[str]


@dataclass(frozen=True)
class Missing:
    """What is missing: a signer of each of `groups`, and `others` from anywhere besides."""

    groups: tuple[str, ...] = ()
    others: int = 0

    def __bool__(self) -> bool:
        return bool(self.groups or self.others)

    def __str__(self) -> str:
        """`1 of finance and 2 others`; empty when nothing is missing."""
        words = [f"1 of {group}" for group in self.groups]
        if self.others:
            more = "more" if not words else "other" if self.others == 1 else "others"
            words.append(f"{self.others} {more}")
        return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def find_missing(
    signers: Sequence[Signer],
    *,
    groups: Sequence[str],
    quorum: int,
    escalated_to: Collection[str] = (),
) -> Missing:
    """What `signers`, all distinct people, lack; falsy once they are enough.

    `escalated_to` are the second groups, empty before the escalation.
    """
    wanted = list(dict.fromkeys(groups))
    standing = [_stands_for(signer, wanted, escalated_to) for signer in signers]
    represented = _match(wanted, standing)
    unrepresented = tuple(group for group in wanted if group not in represented)
    # That there are as many people as groups follows: each group has one of its own.
    people = quorum - len(signers)
    return Missing(groups=unrepresented, others=max(0, people - len(unrepresented)))


def _stands_for(
    signer: Signer, wanted: Sequence[str], escalated_to: Collection[str]
) -> frozenset[str]:
    if not signer.groups.isdisjoint(escalated_to):
        return frozenset(wanted)
    return signer.groups.intersection(wanted)


def _match(wanted: Sequence[str], standing: Sequence[frozenset[str]]) -> dict[str, int]:
    """The most groups that can be given signers of their own, by augmenting paths."""
    signer_of: dict[str, int] = {}

    def find_signer(group: str, tried: set[int]) -> bool:
        for signer, may_stand_for in enumerate(standing):
            if group not in may_stand_for or signer in tried:
                continue
            tried.add(signer)
            taken_by = next((one for one, taken in signer_of.items() if taken == signer), None)
            if taken_by is None or find_signer(taken_by, tried):
                signer_of[group] = signer
                return True
        return False

    for group in wanted:
        find_signer(group, set())
    return signer_of
