"""System checks of the OTEL_… variables: what would keep spans from arriving is said at start.

Guarantees: a variable that asks for spans is never silently without effect.

Does not ask the collector anything, and judges no variable that only the SDK knows.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from django.core.checks import CheckMessage, Error

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HTTP: Final = "http/protobuf"
NEEDED: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def is_asked_for(environment: Mapping[str, str]) -> bool:
    """Whether the variables ask for spans."""
    given = {name: value.strip() for name, value in environment.items()}
    if given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if given.get("OTEL_TRACES_EXPORTER", "").lower() == "none":
        return False
    return any(given.get(name) for name in ENDPOINTS)


def judge(environment: Mapping[str, str]) -> list[CheckMessage]:
    """Everything that is wrong with the given variables."""
    if not is_asked_for(environment):
        return []
    return [*_endpoint(environment), *_protocol(environment), *_libraries(environment)]


def _endpoint(environment: Mapping[str, str]) -> list[CheckMessage]:
    name = _first(ENDPOINTS, environment)
    try:
        place = urlsplit(environment[name].strip())
        is_usable = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError:
        is_usable = False
    if is_usable:
        return []
    return [
        Error(
            f"{name} is no address of a collector.",
            hint="Set it to one like http://127.0.0.1:4318, or unset it.",
            id="agentops.E030",
        )
    ]


def _protocol(environment: Mapping[str, str]) -> list[CheckMessage]:
    name = _first(PROTOCOLS, environment)
    protocol = environment.get(name, "").strip() or HTTP
    if protocol == HTTP:
        return []
    return [
        Error(
            f"{name} is {protocol[:80]!r}: spans are sent by {HTTP} alone.",
            hint=f"Unset it, and let {_first(ENDPOINTS, environment)} name the collector's port "
            "for OTLP over HTTP, which is usually 4318.",
            id="agentops.E031",
        )
    ]


def _libraries(environment: Mapping[str, str]) -> list[CheckMessage]:
    if all(_is_importable(name) for name in NEEDED):
        return []
    return [
        Error(
            f"{_first(ENDPOINTS, environment)} asks for spans, and OpenTelemetry's SDK is not "
            "installed.",
            hint="pip install 'agentops[otel]', or unset it.",
            id="agentops.E032",
        )
    ]


def _first(names: tuple[str, ...], environment: Mapping[str, str]) -> str:
    return next((name for name in names if environment.get(name, "").strip()), names[-1])


def _is_importable(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False
