"""The three verdicts of a look-up."""

from tools import Reconciled
from tools.redaction import RAW_TEXT


def test_a_hit_carries_result_and_reference() -> None:
    found = Reconciled.committed({"id": "re_1"}, external_ref="re_1")
    assert (found.verdict, found.result, found.external_ref) == (
        "committed",
        {"id": "re_1"},
        "re_1",
    )


def test_not_found_carries_nothing() -> None:
    found = Reconciled.not_found()
    assert (found.verdict, found.result, found.failed) == ("not_found", None, False)


def test_a_doubtful_answer_says_why_within_bounds() -> None:
    found = Reconciled.indeterminate("two hits " * 5000)
    assert found.verdict == "indeterminate"
    assert not found.failed
    assert len(found.why) <= RAW_TEXT
