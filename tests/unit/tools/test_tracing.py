"""What of a caller's trace context is passed on, and to whom."""

import pytest

from tools.tracing import current_traceparent, read_traceparent, trace_headers, within_span

IDS = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (f"00-{IDS}-01", f"00-{IDS}-01"),
        (f" 00-{IDS}-00 ", f"00-{IDS}-00"),
        # Of a later version: what it begins with is known.
        (f"cc-{IDS}-01-what-the-future-brings", f"00-{IDS}-01"),
        (f"cc-{IDS}-01", f"00-{IDS}-01"),
        (f"cc-{IDS}-01.what-the-future-does-not-bring", ""),
        # What a flag that nobody here knows means is not ours to repeat.
        (f"00-{IDS}-ff", f"00-{IDS}-01"),
        (f"00-{IDS}-02", f"00-{IDS}-00"),
        (f"cc-{IDS}-fe", f"00-{IDS}-00"),
        ("", ""),
        ("gibberish", ""),
        (f"00-{IDS}-01-more", ""),
        (f"ff-{IDS}-01", ""),
        (f"00-{IDS.upper()}-01", ""),
        (f"00-{IDS}-1", ""),
        (f"00-{IDS}-01\nX-Other: 1", ""),
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", ""),
        ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", ""),
        ("00-" + "0" * 10_000, ""),
    ],
)
def test_a_context_is_passed_on_if_it_is_well_formed(given: str, read: str) -> None:
    assert read_traceparent(given) == read
    assert len(read) in (0, 55)


def test_headers_name_the_open_span_and_nothing_where_there_is_none() -> None:
    assert dict(trace_headers()) == {}
    with within_span(f"00-{IDS}-01"):
        assert dict(trace_headers()) == {"traceparent": f"00-{IDS}-01"}
        with within_span(""):
            assert dict(trace_headers()) == {}
        assert current_traceparent() == f"00-{IDS}-01"
    assert current_traceparent() == ""
