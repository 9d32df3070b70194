"""Where an MCP server is: at an address, or a command to start.

Guarantees: addresses, tokens and other secrets are read from the environment when a call is
made; a missing one is named and counts as "nothing was sent".
Does not connect.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from tools.catalog.secret import NoSecret, read_secret


@dataclass(frozen=True, kw_only=True)
class HttpServer:
    """Streamable HTTP. `url_env` names the variable with the endpoint's address, `token_env` the
    one with a token, which is sent as `Authorization: Bearer` ("" sends none)."""

    url_env: str
    token_env: str = ""

    def url(self) -> str:
        """Raises NoSecret."""
        url = read_secret(self.url_env)
        if not url.startswith(("https://", "http://")):
            raise NoSecret(self.url_env, problem="holds no http address")
        return url

    def headers(self) -> dict[str, str]:
        """Raises NoSecret."""
        if not self.token_env:
            return {}
        return {"Authorization": f"Bearer {read_secret(self.token_env)}"}


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
