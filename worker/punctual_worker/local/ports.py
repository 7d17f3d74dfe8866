"""Ports for what is started on this machine."""

import random
import socket
from typing import Final

_FREE_PORTS: Final = range(20_000, 32_000)
"""Below the range the kernel gives to outgoing connections: a client that retries while its server
is down could otherwise be given the server's own port and connect to itself."""
_TRIES: Final = 100


def claim_port(host: str, port: int) -> int:
    """The port if it can be bound, or a free one for 0; else the `OSError` that says why not."""
    if port:
        _bind_once(host, port)
        return port
    refusal = OSError(f"no free port on {host}")
    for candidate in random.sample(_FREE_PORTS, _TRIES):
        try:
            _bind_once(host, candidate)
            return candidate
        except OSError as error:
            refusal = error
    raise refusal


def _bind_once(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
