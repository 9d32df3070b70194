"""Whether the ports that the stack wants to listen on are free.

A look, not a reservation: another program may still take the port afterwards.
"""

import errno
import socket


class PortUnusable(Exception):
    """Base of what is wrong with a port; `variable` is the setting to change."""

    def __init__(self, sentence: str, *, port: int, variable: str) -> None:
        super().__init__(f"{sentence} Set {variable} to another port.")
        self.port = port
        self.variable = variable


class PortBusy(PortUnusable):
    def __init__(self, *, host: str, port: int, variable: str) -> None:
        sentence = f"Port {port} on {host} is used by another program."
        super().__init__(sentence, port=port, variable=variable)


class PortForbidden(PortUnusable):
    def __init__(self, *, host: str, port: int, variable: str, reason: str) -> None:
        sentence = f"This program may not listen on {host}, port {port} ({reason})."
        super().__init__(sentence, port=port, variable=variable)


def require_free_port(port: int, *, host: str, variable: str) -> None:
    """Raise PortBusy or PortForbidden unless a server could listen there now."""
    if not 0 < port < 65536:
        raise PortForbidden(host=host, port=port, variable=variable, reason="no port number")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As servers do: connections of an earlier one that still linger are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortBusy(host=host, port=port, variable=variable) from error
            reason = error.strerror or str(error)
            raise PortForbidden(host=host, port=port, variable=variable, reason=reason) from error
