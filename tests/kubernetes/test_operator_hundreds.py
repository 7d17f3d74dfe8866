"""Hundreds of Schedulers: none of them is looked at without end, and none holds up another."""

from collections.abc import Callable

from punctual_worker.local.broker import EmbeddedBroker
from support.eventually import eventually
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.operator_process import OperatorProcess
from support.kubernetes.schedulers import KIND, scheduler

COUNT = 200
RECONCILES = "punctual_operator_reconciles_total"
FAILED = {"result": "failed"}


def test_hundreds_that_fail_are_tried_less_and_less_without_a_write_and_hold_up_nobody(
    start_operator: Callable[..., OperatorProcess],
    kubectl: Kubectl,
    broker: EmbeddedBroker,
    app_id: str,
) -> None:
    operator = start_operator(kafka_timeout_seconds=1)
    kubectl.apply(*(scheduler(f"lost{n}", "127.0.0.1:1") for n in range(COUNT)), server_side=True)
    not_ready = {"ready": "False"}
    eventually(lambda: operator.metric("punctual_operator_schedulers", not_ready) == COUNT, 120)

    kubectl.apply(scheduler("fine", broker.bootstrap_servers, appId=app_id))
    kubectl.wait_condition(KIND, "fine", "Ready", timeout=60)
    settled = {"result": "settled"}
    eventually(lambda: operator.metric(RECONCILES, settled) >= 1, 60)

    # the second and third try; then pauses of 8 seconds and more
    eventually(lambda: operator.metric(RECONCILES, FAILED) >= 3 * COUNT, 120)
    writes = operator.metric("punctual_operator_api_writes_total")
    eventually(lambda: operator.metric(RECONCILES, FAILED) >= 4 * COUNT, 120)
    assert operator.metric("punctual_operator_api_writes_total") == writes
    # nobody is tried again and again while others wait
    assert operator.metric(RECONCILES, FAILED) <= 5 * COUNT
