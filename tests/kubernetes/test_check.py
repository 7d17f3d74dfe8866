"""`punctual-operator check`: what `helm test` runs."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from support.eventually import eventually
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.operator_process import OperatorProcess

Check = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def check(control_plane: ControlPlane, namespace: str) -> Check:
    def run(*words: str, **settings: object) -> subprocess.CompletedProcess[str]:
        own = {"lease_namespace": namespace, **settings}
        environment = {
            **os.environ,
            **{f"PUNCTUAL_OPERATOR_{name.upper()}": str(value) for name, value in own.items()},
            "KUBECONFIG": str(control_plane.kubeconfig),
        }
        return subprocess.run(
            [sys.executable, "-m", "punctual_operator", "check", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_an_operator_at_work_passes_and_one_that_has_gone_does_not(
    check: Check, start_operator: Callable[..., OperatorProcess]
) -> None:
    operator = start_operator(lease_seconds=6)
    eventually(lambda: "active" in operator.page("/readyz")[1])
    passed = check(f"http://127.0.0.1:{operator.port}", lease_seconds=6)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "an operator holds the Lease, and answers" in passed.stdout
    operator.stop()
    failed = check(f"http://127.0.0.1:{operator.port}", "--wait=1", lease_seconds=6)
    assert failed.returncode == 1
    assert "is held by nobody" in failed.stdout
    assert "/readyz: " in failed.stdout


def test_where_there_has_never_been_one_it_says_so(check: Check) -> None:
    failed = check("--wait=1")
    assert failed.returncode == 1
    assert "Not Found: has an operator ever started?" in failed.stdout
