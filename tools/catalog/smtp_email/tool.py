"""Sending an e-mail, as a tool that cannot be taken back.

Guarantees: needs a signature unless `approval_policy` says otherwise; all recipients get the
message or none does, as far as the server answers; a message whose fate is unknown is never sent
again without a person, who has its Message-ID to look for.
Does not deliver: it hands the message to one server.
"""

import os
from collections.abc import Callable
from typing import Any, Unpack
from urllib.parse import urlsplit

from pydantic import BaseModel

from tools.call import Call
from tools.catalog.declared import Declared
from tools.catalog.secret import read_secret
from tools.catalog.smtp_email.message import (
    Recipients,
    Subject,
    Text,
    compose,
    is_address,
    is_one_line,
    message_id,
)
from tools.catalog.smtp_email.provider import smtp_provider
from tools.catalog.smtp_email.session import Security, Server, deliver
from tools.declarations import EffectType, Timeout
from tools.errors import InvalidTool, NotSent
from tools.results import external_ref
from tools.spec import tool

PORTS: dict[Security, int] = {"starttls": 587, "tls": 465, "none": 25}
# A server may take minutes to answer the end of a message (RFC 5321, 4.5.3.2.6).
PATIENCE = Timeout(seconds=60)


class SentEmail(BaseModel):
    """What a server took: `reply` is what it said, often with its own name for the message."""

    message_id: str
    recipients: int
    reply: str


def email_tool(
    *,
    sender: str,
    name: str = "send_email",
    description: str = "Send a plain-text e-mail. It cannot be taken back.",
    sender_name: str = "",
    account: str = "",
    host_env: str = "SMTP_HOST",
    security: Security = "starttls",
    username_env: str = "",
    password_env: str = "",
    **declared: Unpack[Declared],
) -> Callable[..., Any]:
    """Register the tool `name(to, subject, text)`; returns it, with a `.spec`.

    `host_env` names the variable with "host" or "host:port"; ports are 587, 465 ("tls") and 25
    ("none") without one. `username_env` and `password_env` name the variables of a login. All
    are read at each call. `account` names the mailbox in journals and approvals, `sender`
    without one. `declared` is what `@tool` takes; pass `approval_policy` to say who must sign.
    """
    if not is_address(sender) or not is_one_line(sender_name):
        fix = "give an address like shop@example.com, and a name of one line"
        raise InvalidTool(name, problem="it has no usable sender", fix=fix)
    if bool(username_env) != bool(password_env):
        raise InvalidTool(name, problem="half a login", fix="name both variables, or none")
    if username_env and security == "none":
        problem = "the password would go over the network in clear"
        raise InvalidTool(name, problem=problem, fix='use security="starttls" or "tls"')

    def send_email(call: Call, to: Recipients, subject: Subject, text: Text) -> SentEmail:
        login = (read_secret(username_env), read_secret(password_env)) if username_env else None
        named = message_id(call.operation_id, sender=sender)
        reply = deliver(
            call,
            server=_server(host_env, security=security, login=login),
            sender=sender,
            to=to,
            message=compose(
                named=named,
                sender=sender,
                sender_name=sender_name,
                to=to,
                subject=subject,
                text=text,
            ),
            message_id=named,
        )
        external_ref(named)
        return SentEmail(message_id=named, recipients=len(to), reply=reply)

    send_email.__doc__ = description
    declared.setdefault("timeout_policy", PATIENCE)
    return tool(
        name=name,
        provider=smtp_provider(account or sender),
        effect_type=EffectType.IRREVERSIBLE,
        **declared,
    )(send_email)


def _server(host_env: str, *, security: Security, login: tuple[str, str] | None) -> Server:
    """The server that the environment names. Raises NotSent."""
    given = os.environ.get(host_env, "").strip()
    try:
        place = urlsplit(f"//{given}")
        host, port = place.hostname, place.port or PORTS[security]
    except ValueError:
        host, port = None, 0
    if not host or place.netloc != given or "@" in given:
        raise NotSent(f"the environment variable {host_env} is not a host or host:port")
    return Server(host=host, port=port, security=security, login=login)
