"""Where an MCP server is: at an address, or a command to start.

Guarantees: addresses, tokens and other secrets are read from the environment when a call is
made; a missing one is named and counts as "nothing was sent".
Does not connect.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tools.catalog.secret import NoSecret, read_secret

# What a header may hold, "Basic …" with its space among it.
_HEADER = re.compile(r"[\x20-\x7e]+")


@dataclass(frozen=True, kw_only=True)
class HttpServer:
    """Streamable HTTP. `url_env` names the variable with the endpoint's address, unless `address`
    says it; `token_env` the one with a token, which is sent as `Authorization: Bearer` ("" sends
    none). `headers_env` names the variable of each further header's value."""

    url_env: str = ""
    address: str = ""
    token_env: str = ""
    headers_env: Mapping[str, str] = field(default_factory=dict)

    def url(self) -> str:
        """Raises NoSecret."""
        if self.address:
            return self.address
        url = read_secret(self.url_env)
        if not url.startswith(("https://", "http://")):
            raise NoSecret(self.url_env, problem="holds no http address")
        return url

    def headers(self) -> dict[str, str]:
        """Raises NoSecret."""
        headers = {name: _read_header(variable) for name, variable in self.headers_env.items()}
        if self.token_env:
            headers["Authorization"] = f"Bearer {read_secret(self.token_env)}"
        return headers


@dataclass(frozen=True, kw_only=True)
class StdioServer:
    """A program that speaks MCP on its standard streams; each call starts and ends one.

    `environment` names the variables that it is given, besides PATH, HOME and the like.
    """

    command: Sequence[str]
    environment: Sequence[str] = ()
    folder: str | None = None

    def given(self) -> dict[str, str]:
        """The named variables. Raises NoSecret."""
        for name in self.environment:
            if name not in os.environ:
                raise NoSecret(name, problem="is not set")
        return {name: os.environ[name] for name in self.environment}


McpServer = HttpServer | StdioServer


def _read_header(variable: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value:
        raise NoSecret(variable, problem="is not set")
    if _HEADER.fullmatch(value) is None:
        raise NoSecret(variable, problem="holds what no header may hold")
    return value
