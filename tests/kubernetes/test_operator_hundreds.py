"""Hundreds of Schedulers: none of them is looked at without end, and none holds up another."""

import time
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
    # so many at a time that pauses, and not slots, decide when one is tried again
    operator = start_operator(kafka_timeout_seconds=1, concurrency=128)
    kubectl.apply(*(scheduler(f"lost{n}", "127.0.0.1:1") for n in range(COUNT)), server_side=True)
    not_ready = {"ready": "False"}
    eventually(lambda: operator.metric("punctual_operator_schedulers", not_ready) == COUNT, 120)

    kubectl.apply(scheduler("fine", broker.bootstrap_servers, appId=app_id))
    kubectl.wait_condition(KIND, "fine", "Ready", timeout=60)
    settled = {"result": "settled"}
    eventually(lambda: operator.metric(RECONCILES, settled) >= 1, 60)

    def when_tried(times: int) -> float:
        eventually(lambda: operator.metric(RECONCILES, FAILED) >= times * COUNT, 120)
        return time.monotonic()

    second, third = when_tried(2), when_tried(3)
    writes = operator.metric("punctual_operator_api_writes_total")
    fourth, fifth = when_tried(4), when_tried(5)
    assert operator.metric("punctual_operator_api_writes_total") == writes
    # less and less often: the pauses are 4, 8 and 16 seconds
    assert fourth - third > 1.3 * (third - second)
    assert fifth - fourth > 1.3 * (fourth - third)
