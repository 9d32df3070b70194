"""When signatures are enough: every small case against a search that tries everything."""

import ast
from itertools import chain, combinations, combinations_with_replacement, permutations, product
from pathlib import Path

import pytest

import approvals.quorum
from approvals.quorum import Missing, Signer, find_missing

GROUPS = ("finance", "legal", "board")
ROOT = Path(__file__).resolve().parents[2]


def signers(*sets: str) -> list[Signer]:
    """One signer per text: the groups they are in, by name."""
    return [
        Signer(name=f"person {place}", groups=frozenset(names.split()))
        for place, names in enumerate(sets)
    ]


def missing(*sets: str, groups: tuple[str, ...] = (), quorum: int = 1, to: str = "") -> str:
    return str(
        find_missing(signers(*sets), groups=groups, quorum=quorum, escalated_to=tuple(to.split()))
    )


def is_enough(people: list[Signer], *, groups: tuple[str, ...], quorum: int, to: str) -> bool:
    """By trying every way to give each group a person of its own."""
    if len(people) < max(quorum, len(groups)):
        return False
    return any(
        all(
            group in signer.groups or to in signer.groups
            for group, signer in zip(groups, chosen, strict=True)
        )
        for chosen in permutations(people, len(groups))
    )


def small_cases() -> list[tuple[list[Signer], tuple[str, ...], int, str]]:
    """Up to 4 signers, each in any of up to 3 groups and the second one, or in none."""
    memberships = [
        " ".join(chosen) for size in range(len(GROUPS) + 1) for chosen in combinations(GROUPS, size)
    ]
    people = chain.from_iterable(
        combinations_with_replacement([*memberships, "seconds"], size) for size in range(5)
    )
    asked_for = [GROUPS[:size] for size in range(len(GROUPS) + 1)]
    return [
        (signers(*sets), groups, quorum, to)
        for sets, groups, quorum, to in product(people, asked_for, (1, 2, 4), ("", "seconds"))
    ]


def test_it_agrees_with_trying_everything() -> None:
    cases = small_cases()
    assert len(cases) > 10_000
    for people, groups, quorum, to in cases:
        found = find_missing(people, groups=groups, quorum=quorum, escalated_to=(to,) if to else ())
        expected = is_enough(people, groups=groups, quorum=quorum, to=to)
        assert (not found) is expected, (people, groups, quorum, to, found)


def test_what_it_says_is_missing_is_enough_to_fill_it() -> None:
    """Whoever it names, and no fewer."""
    for people, groups, quorum, to in small_cases():
        escalated_to = (to,) if to else ()
        found = find_missing(people, groups=groups, quorum=quorum, escalated_to=escalated_to)
        came = [*found.groups, *[""] * found.others]
        joined = [
            *people,
            *(Signer(name=f"new {n}", groups=frozenset({g})) for n, g in enumerate(came)),
        ]
        assert not find_missing(joined, groups=groups, quorum=quorum, escalated_to=escalated_to)
        for left_out in range(len(came)):
            fewer = joined[: len(people) + left_out] + joined[len(people) + left_out + 1 :]
            assert find_missing(fewer, groups=groups, quorum=quorum, escalated_to=escalated_to)


def test_the_order_of_signatures_and_of_groups_does_not_matter() -> None:
    people = signers("finance legal", "finance", "legal board")
    for groups in permutations(GROUPS):
        for order in permutations(people):
            assert not find_missing(order, groups=groups, quorum=1)


@pytest.mark.parametrize(
    ("sets", "asked", "said"),
    [
        ((), {}, "1 more"),
        ((), {"quorum": 3}, "3 more"),
        (("",), {}, ""),
        (("",), {"quorum": 0}, ""),
        ((), {"quorum": 0}, ""),
        ((), {"groups": ("finance",)}, "1 of finance"),
        ((), {"groups": ("finance", "legal")}, "1 of finance and 1 of legal"),
        ((), {"groups": GROUPS}, "1 of finance, 1 of legal and 1 of board"),
        (("finance",), {"groups": ("finance",), "quorum": 2}, "1 more"),
        (("legal",), {"groups": ("finance",), "quorum": 3}, "1 of finance and 1 other"),
        ((), {"groups": ("finance",), "quorum": 3}, "1 of finance and 2 others"),
        # One person stands for one group, however many they are in.
        (("finance legal",), {"groups": ("finance", "legal")}, "1 of legal"),
        (("finance legal", "finance"), {"groups": ("finance", "legal")}, ""),
        (("finance", "finance legal"), {"groups": ("legal", "finance")}, ""),
        # Enough people, none of them of the group.
        (("", "", ""), {"groups": ("finance",)}, "1 of finance"),
        # The second group stands for nobody before the escalation, and for any after it.
        (("seconds",), {"groups": ("finance",)}, "1 of finance"),
        (("seconds",), {"groups": ("finance",), "to": "seconds"}, ""),
        (("seconds",), {"groups": ("finance", "legal"), "to": "seconds"}, "1 of legal"),
        (("seconds", "seconds"), {"groups": ("finance", "legal"), "to": "seconds"}, ""),
        # A group that is named twice is one group.
        (("finance",), {"groups": ("finance", "finance")}, ""),
    ],
)
def test_it_says_whose_signatures_are_missing(
    sets: tuple[str, ...], asked: dict[str, object], said: str
) -> None:
    assert missing(*sets, **asked) == said  # type: ignore[arg-type]


def test_nothing_missing_is_false() -> None:
    assert not Missing()
    assert Missing(others=1)
    assert Missing(groups=("finance",))


def test_it_reads_nothing() -> None:
    tree = ast.parse((ROOT / str(approvals.quorum.__file__)).read_text())
    imported = {
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
    }
    assert imported <= {"collections.abc", "dataclasses"}
    assert not any(isinstance(node, ast.Import) for node in ast.walk(tree))
