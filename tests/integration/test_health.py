"""Probes and metrics over HTTP."""

import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter
from punctual_worker.health import HealthServer, HealthServerError


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_probes_say_why_they_fail_and_metrics_are_served() -> None:
    registry = CollectorRegistry()
    Counter("punctual_things", "Things.", registry=registry).inc()
    state = {"ready": (False, "partition 3 is being restored")}
    server = HealthServer(registry, host="127.0.0.1", port=0, ready=lambda: state["ready"])

    with server:
        assert get(f"{server.url}/livez") == (200, "ok\n")
        assert get(f"{server.url}/readyz") == (503, "partition 3 is being restored\n")
        state["ready"] = (True, "ready")
        assert get(f"{server.url}/readyz?verbose") == (200, "ready\n")
        status, metrics = get(f"{server.url}/metrics")
        assert (status, "punctual_things_total 1.0" in metrics) == (200, True)
        assert get(f"{server.url}/other")[0] == 404


def test_a_port_in_use_is_told_in_a_sentence_and_is_free_again_after_the_stop() -> None:
    def server(port: int) -> HealthServer:
        return HealthServer(
            CollectorRegistry(), host="127.0.0.1", port=port, ready=lambda: (True, "")
        )

    with server(0) as first:
        with pytest.raises(HealthServerError, match=f"cannot be served on 127.0.0.1:{first.port}"):
            server(first.port)
        port = first.port
    server(port).stop()
