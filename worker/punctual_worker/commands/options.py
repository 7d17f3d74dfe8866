"""Settings as flags: each command shows those that concern it, and gets a finished `Settings`."""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from punctual_worker.contract.dialects import NAMES as DIALECTS
from punctual_worker.logs import configure_logging
from punctual_worker.settings import Settings, SettingsError, load_settings

Command = Callable[..., Any]

_HELP: Final = {
    "bootstrap_servers": "Kafka brokers, host:port,host:port.",
    "app_id": "Names the topics (<app-id>-schedule-requests, ...) and the consumer groups.",
    "data_dir": "Directory for local caches and the embedded broker's data.",
    "http_host": "Address to serve metrics and health on.",
    "http_port": "Port to serve metrics and health on; 0 takes a free one.",
    "log_format": "Log lines as text or json.",
    "log_level": "debug, info, warning or error.",
    "request_partitions": "Partitions of the requests and rejections topics.",
    "action_partitions": "Partitions of the actions and history topics.",
    "replication_factor": "Replicas of each topic.",
    "request_max_bytes": "Largest request.",
    "requests_cleanup_policy": "compact, or delete if records without a key are scheduled.",
    "rejections_cleanup_policy": "compact, or delete if records without a key are scheduled.",
    "history": "Whether every event is also written to <app-id>-schedule-history.",
    "intake_mode": "real-time or micro-batch.",
    "intake_batch_seconds": "Length of a real-time batch.",
    "intake_master": "Spark master; by default this process; k8s in a pod: its own cluster.",
    "destinations": "Topics that may be delivered to, comma-separated, * as wildcard.",
    "sources": "Also take requests from TOPIC, written in DIALECT; repeatable.",
    "horizon_days": "How far ahead a delivery may be asked for.",
    "guarantee": "exactly-once or at-least-once.",
    "trace_headers": "Whether delivered records tell their id, time and source.",
    "session_timeout_ms": "After this long without a sign of life another dispatcher takes over.",
    "transaction_timeout_ms": "After this long an unfinished transaction is aborted.",
    "turn_max_records": "Most actions read, and most messages delivered, in one transaction.",
    "delivery_attempts": "How often an undeliverable message is tried before it is rejected.",
    "retry_backoff_ms": "Pause after the first failed delivery; doubled by each further one.",
    "console_url": "Where the console is.",
    "console_token_file": "File with the bearer token to ask for.",
    "console_user_header": "Header in which a trusted proxy names the user.",
    "console_trusted_proxies": "Networks from which that header is believed.",
    "console_hosts": "Further names of the console, on loopback or behind a proxy.",
    "console_read_only": "Whether nothing can be changed through it.",
    "console_hide_payloads": "Whether keys, values and headers are left out.",
    "console_payload_max_bytes": "Longest payload that is shown whole.",
    "console_writes_per_second": "Most requests of one user.",
    "console_parts": "name=url of parts whose health is shown, comma-separated.",
    "console_rejections_kept": "How many of the latest rejections the view keeps.",
    "console_history_kept": "How many of the latest events the view keeps.",
    "on_lost_checkpoint": "refuse, or deliver what the log holds though some may come twice.",
}
CONNECTION: Final = ("bootstrap_servers", "app_id")
LOGGING: Final = ("log_format", "log_level")
SERVING: Final = ("data_dir", "http_host", "http_port")
TOPICS: Final = (
    "request_partitions",
    "action_partitions",
    "replication_factor",
    "request_max_bytes",
    "requests_cleanup_policy",
    "rejections_cleanup_policy",
    "history",
)
INTAKE: Final = (
    "request_max_bytes",
    "intake_mode",
    "intake_batch_seconds",
    "intake_master",
    "destinations",
    "sources",
    "horizon_days",
)
DISPATCHER: Final = (
    "history",
    "guarantee",
    "trace_headers",
    "session_timeout_ms",
    "transaction_timeout_ms",
    "turn_max_records",
    "delivery_attempts",
    "retry_backoff_ms",
    "on_lost_checkpoint",
)
CONSOLE: Final = (
    "console_token_file",
    "console_user_header",
    "console_trusted_proxies",
    "console_hosts",
    "console_read_only",
    "console_hide_payloads",
    "console_payload_max_bytes",
    "console_writes_per_second",
    "console_parts",
    "console_rejections_kept",
    "console_history_kept",
)
_SECRET_WORDS: Final = ("password", "secret", "key.pem", "jaas", "token")


def with_settings(*fields: str, kafka: bool = True) -> Callable[[Command], Command]:
    """Give a command flags for these settings; it is called with `settings` and its own flags."""
    names = tuple(dict.fromkeys((*fields, *LOGGING)))

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(*args: Any, config: Path | None, **given: Any) -> Any:
            flags = {name: given.pop(name) for name in names}
            if not flags.get("sources"):
                flags.pop("sources", None)
            for name in ("kafka", "spark"):
                if pairs := given.pop(name, ()):
                    flags[name] = name_value_pairs(pairs, flag=f"--{name}")
            _refuse_secrets(flags.get("kafka", {}))
            settings = load_settings(flags=flags, environment=os.environ, config_file=config)
            configure_logging(format=settings.log_format, level=settings.log_level)
            return command(*args, settings=settings, **given)

        for option in reversed(_options(names, kafka=kafka)):
            option(wrapper)
        return wrapper

    return decorate


def name_value_pairs(pairs: tuple[str, ...], *, flag: str) -> dict[str, str]:
    """`name=value` texts as a mapping."""
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise SettingsError(f"{flag}: {pair!r} is given, want name=value")
        parsed[name] = value
    return parsed


def _refuse_secrets(kafka: Mapping[str, str]) -> None:
    for name in kafka:
        if any(word in name for word in _SECRET_WORDS):
            variable = "PUNCTUAL_KAFKA_" + name.upper().replace(".", "_")
            raise SettingsError(
                f"--kafka: {name} would be seen by everybody in the process list; "
                f"want it in the variable {variable} or under kafka in the --config file"
            )


def _options(names: tuple[str, ...], *, kafka: bool) -> list[Callable[[Command], Command]]:
    options = [_option(name) for name in names]
    if kafka:
        help_text = "Further Kafka client property, by librdkafka's names; repeatable."
        options.append(click.option("--kafka", multiple=True, metavar="NAME=VALUE", help=help_text))
    if "intake_master" in names:
        help_text = "Further Spark setting; repeatable."
        options.append(click.option("--spark", multiple=True, metavar="NAME=VALUE", help=help_text))
    path = click.Path(path_type=Path, dir_okay=False)
    options.append(click.option("--config", type=path, help="YAML file with settings."))
    return options


def _option(name: str) -> Callable[[Command], Command]:
    field = Settings.model_fields[name]
    flag = "--" + name.replace("_", "-")
    # None means "not given": the variable or the file may say; the model has the default
    help_text = f"{_HELP[name]} [default: {_shown(field.default)}]"
    if name == "sources":
        help_text = f"{_HELP[name]} Dialects: {', '.join(DIALECTS)}."
        return click.option(
            *("--source", name), multiple=True, metavar="TOPIC=DIALECT", help=help_text
        )
    if field.annotation is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=help_text)
    return click.option(flag, name, default=None, help=help_text)


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    return str(default) if default not in ("", (), None) else "none"
