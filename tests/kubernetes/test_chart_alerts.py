"""The alerts: they name metrics that exist, parse, and go off when they should and only then."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from punctual_operator.metrics import OperatorMetrics
from punctual_worker.dispatch.metrics import DispatchMetrics
from punctual_worker.intake.progress import IntakeMetrics
from support.kubernetes.helm import CHART, Helm
from support.kubernetes.manifests import the

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool was not found: apt-get install prometheus"
)
WHERE = 'namespace="shop", scheduler="reminders"'
STEADY = {
    # a Scheduler with two partitions, all well, for two hours
    f'up{{{WHERE}, component="intake"}}': "1x120",
    f'punctual_dispatcher_state{{{WHERE}, partition="0", state="active"}}': "1x120",
    f'punctual_dispatcher_state{{{WHERE}, partition="1", state="active"}}': "1x120",
    f'punctual_pending{{{WHERE}, partition="0"}}': "500x120",
    f'punctual_overdue{{{WHERE}, partition="0"}}': "0x120",
    f'punctual_intake_lag_records{{{WHERE}, partition="0"}}': "3x120",
    f'punctual_lateness_seconds_bucket{{{WHERE}, le="0.01"}}': "0+100x120",
    f'punctual_lateness_seconds_bucket{{{WHERE}, le="+Inf"}}': "0+100x120",
    f'punctual_requests_total{{{WHERE}, action="ADD"}}': "0+100x120",
    f'punctual_rejections_total{{{WHERE}, code="unknown-header"}}': "0+1x120",
    "punctual_operator_leading{}": "1x120",
    'punctual_operator_reconciles_total{result="settled"}': "0+1x120",
    'punctual_operator_reconciles_total{result="failed"}': "0x120",
    'punctual_operator_schedulers{ready="True"}': "1x120",
    'punctual_operator_schedulers{ready="False"}': "0x120",
}
# after an hour; `_` means that nothing was seen
TROUBLE = {
    "PunctualMessagesOverdue": {
        f'punctual_overdue{{{WHERE}, partition="0"}}': "0x60 7x60",
    },
    "PunctualDeliveriesLate": {
        f'punctual_lateness_seconds_bucket{{{WHERE}, le="0.01"}}': "0+100x60 6000+0x60",
        f'punctual_lateness_seconds_bucket{{{WHERE}, le="10"}}': "0+100x120",
    },
    "PunctualPartitionWithoutDispatcher": {
        f'punctual_dispatcher_state{{{WHERE}, partition="1", state="active"}}': "1x60 _x60",
    },
    "PunctualCheckpointLost": {
        f'punctual_dispatcher_state{{{WHERE}, partition="1", state="checkpoint-lost"}}': (
            "0x60 1x60"
        ),
    },
    "PunctualDeliveriesFailing": {
        f'punctual_delivery_failures_total{{{WHERE}, reason="unknown-destination"}}': (
            "0x60 1+1x60"
        ),
    },
    "PunctualIntakeLagging": {
        f'punctual_intake_lag_records{{{WHERE}, partition="0"}}': "3x60 20000x60",
    },
    "PunctualIntakeMissing": {
        f'punctual_intake_lag_records{{{WHERE}, partition="0"}}': "3x60 _x60",
    },
    "PunctualRejectionsRising": {
        f'punctual_rejections_total{{{WHERE}, code="unknown-header"}}': "0+1x60 61+100x60",
    },
    "PunctualSchedulerNotReady": {
        'punctual_operator_schedulers{ready="False"}': "0x60 1x60",
    },
    "PunctualOperatorFailing": {
        'punctual_operator_reconciles_total{result="failed"}': "0x60 1+1x60",
    },
    "PunctualOperatorMissing": {
        "punctual_operator_leading{}": "1x60 0x60",
    },
}


@pytest.fixture(scope="module")
def rules(helm: Helm) -> list[dict[str, Any]]:
    rendered = helm.render({"metrics": {"prometheusRule": {"enabled": True}}})
    (group,) = the(rendered, "PrometheusRule")["spec"]["groups"]
    return list(group["rules"])


def test_alerts_and_dashboard_only_name_metrics_that_there_are(
    rules: list[dict[str, Any]],
) -> None:
    known: set[str] = set()
    for metrics in (OperatorMetrics, DispatchMetrics, IntakeMetrics):
        registry = CollectorRegistry()
        metrics(registry)
        for family in registry.collect():
            endings = {
                "counter": ["_total"],
                "histogram": ["_bucket", "_count", "_sum"],
            }.get(family.type, [""])
            known |= {family.name + ending for ending in endings}
    dashboard = (CHART / "files" / "dashboard.json").read_text()
    for text in (*(rule["expr"] for rule in rules), dashboard):
        named = set(re.findall(r"\bpunctual_\w+", text)) - {"punctual_json"}
        assert named <= known, named - known


def test_every_alert_says_what_happened_and_how_bad_it_is(rules: list[dict[str, Any]]) -> None:
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert len(rule["annotations"]["description"]) > 40


def test_alerts_get_the_labels_and_links_of_the_values(helm: Helm) -> None:
    own = {"enabled": True, "alertLabels": {"team": "a"}, "runbookUrl": "https://wiki/punctual"}
    rendered = helm.render({"metrics": {"prometheusRule": own}})
    for rule in the(rendered, "PrometheusRule")["spec"]["groups"][0]["rules"]:
        assert rule["labels"]["team"] == "a"
        link = f"https://wiki/punctual#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook_url"] == link


@needs_promtool
def test_alerts_go_off_when_they_should_and_only_then(
    rules: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert TROUBLE.keys() == {rule["alert"] for rule in rules}
    cases: list[tuple[dict[str, str], list[str]]] = [
        ({}, []),
        *((series, [alert]) for alert, series in TROUBLE.items()),
    ]
    _prove(rules, cases, tmp_path)


@needs_promtool
def test_a_deleted_scheduler_is_not_missed(rules: list[dict[str, Any]], tmp_path: Path) -> None:
    gone = {
        name: re.sub(r"x120$", "x60 _x60", values)
        for name, values in STEADY.items()
        if WHERE in name
    }
    _prove(rules, [(gone, [])], tmp_path)


def _prove(
    rules: list[dict[str, Any]],
    cases: list[tuple[dict[str, str], list[str]]],
    folder: Path,
) -> None:
    """Let promtool play each case for two hours, and compare what is firing then."""
    groups = {"groups": [{"name": "punctual", "rules": rules}]}
    (folder / "rules.yaml").write_text(yaml.safe_dump(groups))
    tests = [
        {
            "interval": "1m",
            "input_series": [
                {"series": name, "values": values} for name, values in {**STEADY, **case}.items()
            ],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": "2h",
                    "exp_samples": [
                        {"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in firing
                    ],
                }
            ],
        }
        for case, firing in cases
    ]
    plan = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(plan))
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", "tests.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
