"""The settings of each part, as the file that its pods mount.

Each part's file has what concerns it and nothing else, so that a change rolls only what it touches.
"""

from typing import Any

import yaml

from punctual_operator.api.names import HTTP_PORT, PartName, part_name
from punctual_operator.api.types import Scheduler
from punctual_operator.resources.secrets import open_properties

CONFIG_FILE = "config.yaml"
_DIALECTS = {
    "Native": "native",
    "KafkaMessageScheduler": "kafka-message-scheduler",
    "KmsJson": "kms-json",
    "KmsAvro": "kms-avro",
    "Karafka": "karafka",
}


def part_settings(scheduler: Scheduler, part: PartName) -> dict[str, Any]:
    """Settings by the names that `punctual_worker.settings` has."""
    spec = scheduler.spec
    own = {
        "intake": _intake_settings,
        "dispatcher": _dispatcher_settings,
        "console": _console_settings,
    }[part](scheduler)
    settings: dict[str, Any] = {
        "app_id": scheduler.app_id,
        "bootstrap_servers": ",".join(spec.kafka.bootstrap_servers),
        "log_format": spec.logging.format.lower(),
        "log_level": spec.logging.level.lower(),
        **own,
    }
    if properties := open_properties(spec.kafka):
        settings["kafka"] = properties
    return settings


def config_text(settings: dict[str, Any]) -> str:
    """The file's content, the same for the same settings."""
    return str(yaml.safe_dump(settings, sort_keys=True, allow_unicode=True))


def _intake_settings(scheduler: Scheduler) -> dict[str, Any]:
    spec = scheduler.spec
    settings: dict[str, Any] = {
        "intake_mode": {"RealTime": "real-time", "MicroBatch": "micro-batch"}[spec.intake.mode],
        "intake_batch_seconds": spec.intake.batch_seconds,
        "request_max_bytes": spec.topics.request_max_bytes,
        "requests_cleanup_policy": spec.topics.requests.cleanup_policy.lower(),
        "rejections_cleanup_policy": spec.topics.rejections.cleanup_policy.lower(),
        "horizon_days": spec.horizon_days,
    }
    if spec.destinations:
        settings["destinations"] = list(spec.destinations)
    if spec.intake.sources:
        settings["sources"] = {one.topic: _DIALECTS[one.dialect] for one in spec.intake.sources}
    if spec.intake.spark_properties:
        settings["spark"] = dict(spec.intake.spark_properties)
    if spec.intake.executors is not None:
        settings["intake_master"] = "k8s"
    return settings


def _dispatcher_settings(scheduler: Scheduler) -> dict[str, Any]:
    spec, dispatchers = scheduler.spec, scheduler.spec.dispatchers
    guarantees = {"ExactlyOnce": "exactly-once", "AtLeastOnce": "at-least-once"}
    return {
        "guarantee": guarantees[dispatchers.guarantee],
        "history": spec.history == "Enabled",
        "trace_headers": spec.trace_headers == "Enabled",
        "delivery_attempts": dispatchers.delivery_attempts,
        "retry_backoff_ms": dispatchers.retry_backoff_milliseconds,
        "on_lost_checkpoint": dispatchers.on_lost_checkpoint.lower(),
        "rejections_cleanup_policy": spec.topics.rejections.cleanup_policy.lower(),
    }


def _console_settings(scheduler: Scheduler) -> dict[str, Any]:
    spec, console = scheduler.spec, scheduler.spec.console
    others: tuple[PartName, ...] = ("intake", "dispatcher")
    settings: dict[str, Any] = {
        "console_read_only": console.access == "ReadOnly",
        "console_hide_payloads": console.payloads == "Hidden",
        "console_parts": [
            f"{part}=http://{part_name(scheduler.name, part)}:{HTTP_PORT}" for part in others
        ],
        "request_max_bytes": spec.topics.request_max_bytes,
        "history": spec.history == "Enabled",
    }
    if console.user_header is not None:
        settings["console_user_header"] = console.user_header
        settings["console_trusted_proxies"] = list(console.trusted_proxies)
    if console.hosts:
        settings["console_hosts"] = list(console.hosts)
    return settings
