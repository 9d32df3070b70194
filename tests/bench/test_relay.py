"""The relay counts what the server says, however the bytes arrive."""

from hypothesis import given
from hypothesis import strategies as st

from tests.bench.relay import Messages

kinds = st.binary(min_size=1, max_size=1)
messages = st.lists(st.tuples(kinds, st.binary(max_size=40)), max_size=12)


@given(messages, st.lists(st.integers(min_value=1, max_value=17), min_size=1, max_size=40))
def test_every_message_is_seen_once_wherever_the_stream_is_cut(
    sent: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(kind + (len(body) + 4).to_bytes(4, "big") + body for kind, body in sent)
    reader = Messages()
    seen = b""
    while stream:
        cuts = [*cuts[1:], cuts[0]]
        seen += reader.read(stream[: cuts[0]])
        stream = stream[cuts[0] :]
    assert seen == b"".join(kind for kind, _ in sent)


def test_a_body_that_looks_like_ready_for_query_is_not_counted() -> None:
    assert Messages().read(b"D\x00\x00\x00\x09ZZZZZ" + b"Z\x00\x00\x00\x05I") == b"DZ"
