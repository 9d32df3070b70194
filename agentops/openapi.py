"""What the published schema says about tokens."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension

from agentops.access import KEYWORD


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How a caller sends a token. Importing this module is what makes it known."""

    target_class = "agentops.access.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": f"`{KEYWORD} …`, with a token from `manage.py create_token`.",
        }
