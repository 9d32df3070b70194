"""Secrets and hostile lengths stay out of what is shown."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tools.redaction import bound_text, redact, scrub


def test_values_are_hidden_by_key_at_any_depth_and_in_any_case() -> None:
    value = {"a": [{"Card_Number": "4242", "b": 1}], "card_number": {"whole": "4242"}}
    assert redact(value, ("card_number",)) == {
        "a": [{"Card_Number": "[redacted]", "b": 1}],
        "card_number": "[redacted]",
    }


def test_redaction_does_not_touch_the_original() -> None:
    value = {"pin": "1234"}
    redact(value, ("pin",))
    assert value == {"pin": "1234"}


def test_without_names_nothing_is_hidden() -> None:
    assert redact({"pin": "1234"}, ()) == {"pin": "1234"}
    assert scrub("pin 1234", {"pin": "1234"}, ()) == "pin 1234"


def test_sensitive_values_are_removed_from_free_text() -> None:
    arguments = {"Card": {"number": "4242424242424242", "cvc": 12345}, "order": "17"}
    text = "card 4242424242424242 with 12345 refused for order 17"
    assert scrub(text, arguments, ("card",)) == (
        "card [redacted] with [redacted] refused for order 17"
    )


def test_a_value_inside_another_leaves_nothing_of_either() -> None:
    arguments = {"card": ["4242", "424242"]}
    assert scrub("424242 4242", arguments, ("card",)) == "[redacted] [redacted]"


def test_values_too_short_to_be_secrets_are_left() -> None:
    assert scrub("1 of 123", {"card": ["1", "123"]}, ("card",)) == "1 of 123"


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=80), st.integers(1, 50))
def test_bounded_text_is_short_and_storable(text: str, limit: int) -> None:
    bounded = bound_text(text, limit=limit)
    assert len(bounded) <= limit
    assert "\0" not in bounded
    bounded.encode()


def test_text_within_the_limit_stays_as_it_is() -> None:
    assert bound_text("Zürich", limit=6) == "Zürich"
    assert bound_text("Zürich!", limit=6) == "Züric…"
