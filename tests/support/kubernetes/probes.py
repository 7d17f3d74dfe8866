"""A container's probes: when each is due, and what its answers amount to."""

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


# probes go to the pod, never through a proxy that this machine may have
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())


class Probe:
    """One probe of one run of a container; without a definition it passes at once."""

    def __init__(
        self, definition: Mapping[str, Any] | None, *, container: Mapping[str, Any], address: str
    ):
        self._definition = definition
        self._container = container
        self._address = address
        self._in_a_row = 0
        self._last: bool | None = None
        delay = (definition or {}).get("initialDelaySeconds", 0)
        self._due = time.monotonic() + delay
        self.passed = definition is None
        self.failed = False
        self.reason = ""

    def ask_if_due(self) -> None:
        """Ask when it is time; `passed` and `failed` change when the thresholds are reached."""
        if self._definition is None or time.monotonic() < self._due:
            return
        passed, self.reason = self._ask(self._definition)
        self._in_a_row = self._in_a_row + 1 if passed == self._last else 1
        self._last = passed
        threshold = "successThreshold" if passed else "failureThreshold"
        if self._in_a_row >= self._definition.get(threshold, 1 if passed else 3):
            self.passed, self.failed = passed, not passed
        self._due = time.monotonic() + self._definition.get("periodSeconds", 10)

    def _ask(self, definition: Mapping[str, Any]) -> tuple[bool, str]:
        timeout = definition.get("timeoutSeconds", 1)
        if get := definition.get("httpGet"):
            host, port = get.get("host", self._address), self._port(get["port"])
            return _get(f"http://{host}:{port}{get.get('path', '/')}", timeout)
        if connect := definition.get("tcpSocket"):
            return _connect((self._address, self._port(connect["port"])), timeout)
        raise ValueError(f"the test node cannot probe {sorted(definition)}")

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        named = {each.get("name"): each["containerPort"] for each in self._container["ports"]}
        return int(named[port])


def _get(url: str, timeout: float) -> tuple[bool, str]:
    try:
        with _OPENER.open(url, timeout=timeout) as answer:
            return True, str(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            passed = error.code < 400  # a redirect counts as an answer
            return passed, f"{error.code} {error.read(500).decode(errors='replace')}"
    except OSError as error:
        return False, str(error)


def _connect(address: tuple[str, int], timeout: float) -> tuple[bool, str]:
    try:
        with socket.create_connection(address, timeout=timeout):
            return True, "connected"
    except OSError as error:
        return False, str(error)
