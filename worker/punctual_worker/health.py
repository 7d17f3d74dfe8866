"""Metrics and probes of a part, over HTTP: `/metrics`, `/livez`, `/readyz`."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from punctual_worker.errors import PunctualError

Probe = Callable[[], tuple[bool, str]]
"""Whether all is well, and the reason if not (or a word if so)."""
_PLAIN_TEXT: Final = "text/plain; charset=utf-8"


class HealthServerError(PunctualError):
    """The address for metrics and health cannot be used."""


@dataclass(frozen=True)
class Answer:
    """What a route says."""

    status: HTTPStatus
    content_type: str
    body: bytes


def always() -> tuple[bool, str]:
    """Alive as long as it answers."""
    return True, "ok"


class HealthServer:
    """Serves in threads of its own from `start` to `stop`."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        host: str,
        port: int,
        ready: Probe,
        live: Probe = always,
    ) -> None:
        """Binds at once, so that a port in use is told before any work begins; 0 is a free port."""
        routes = {
            "/metrics": lambda: Answer(
                HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry)
            ),
            "/livez": lambda: _probe(live),
            "/readyz": lambda: _probe(ready),
        }
        try:
            self._server = _Server((host, port), _handler(routes))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise HealthServerError(
                f"Metrics and health cannot be served on {host}:{port} ({reason}): "
                "choose another --http-port (0 takes a free one) or --http-host."
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="health", daemon=True
        )

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """For people."""
        host = str(self._server.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and free the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a scraper's idle connection must not hold up our end


def _probe(probe: Probe) -> Answer:
    ok, reason = probe()
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, _PLAIN_TEXT, f"{reason}\n".encode())


def _handler(routes: Mapping[str, Callable[[], Answer]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            route = routes.get(self.path.partition("?")[0])
            if route is None:
                known = f"not found; there is {', '.join(routes)}\n".encode()
                answer = Answer(HTTPStatus.NOT_FOUND, _PLAIN_TEXT, known)
            else:
                answer = route()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if with_body:
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes come every few seconds: not worth a line."""

    return Handler
