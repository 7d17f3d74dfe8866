"""`punctual topics`: makes, repairs or checks the topics of an app id."""

import json
import sys

import click

from punctual_worker.commands.options import CONNECTION, TOPICS, with_settings
from punctual_worker.contract.topics import TopicSpec
from punctual_worker.errors import PunctualError
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.settings import Settings
from punctual_worker.topics.admin import TopicAdmin
from punctual_worker.topics.plan import TopicResult
from punctual_worker.topics.wanted import wanted_topics


@click.command()
@with_settings(*CONNECTION, *TOPICS, "sources")
@click.option(
    "--destination",
    "destinations",
    multiple=True,
    metavar="TOPIC",
    help="Also make this topic if it is not there; repeatable.",
)
@click.option("--check", is_flag=True, help="Change nothing; the exit status tells.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def topics(
    settings: Settings, *, destinations: tuple[str, ...], check: bool, as_json: bool
) -> None:
    """Make the topics of the app id, or repair their configuration.

    Exit status 1 if something could not be done (with --check: if something is to do).
    """
    admin = TopicAdmin(librdkafka_config(settings))
    wanted = wanted_topics(settings)
    there = admin.describe((*destinations, *settings.sources))
    if missing := [name for name in settings.sources if name not in there]:
        raise PunctualError(
            f"There is no topic {', '.join(missing)}, which --source names: want the topic that "
            "the producers of these requests write to; it is not made here."
        )
    wanted += [
        TopicSpec(name, settings.action_partitions, settings.replication_factor)
        for name in destinations
        if name not in there
    ]
    results = admin.ensure(wanted, check_only=check)
    if as_json:
        report = [_as_json(result, check=check) for result in results]
        click.echo(json.dumps(report, indent=2))
    else:
        for result in results:
            for line in describe_result(result, check=check):
                click.echo(line)
    sys.exit(0 if all(result.ok for result in results) else 1)


def describe_result(result: TopicResult, *, check: bool = False) -> list[str]:
    """What happened to a topic, a line for each thing."""
    plan, name = result.plan, result.plan.spec.name
    if result.error is not None:
        return [f"{name}: failed: {result.error}"]
    lines = []
    if plan.create:
        made = "missing" if check else "created"
        count = plan.spec.partitions
        lines.append(
            f"{name}: {made} ({count} partitions, replication factor "
            f"{plan.spec.replication_factor})"
        )
    repaired = "differs" if check else "repaired"
    lines += [
        f"{name}: {repaired}: {repair.key} {repair.old} -> {repair.new}" for repair in plan.repairs
    ]
    lines += [f"{name}: refused: {reason}" for reason in plan.refusals]
    return lines or [f"{name}: unchanged"]


def _as_json(result: TopicResult, *, check: bool) -> dict[str, object]:
    plan = result.plan
    if result.error is not None:
        outcome = "failed"
    elif plan.refusals:
        outcome = "refused"
    elif plan.create:
        outcome = "missing" if check else "created"
    elif plan.repairs:
        outcome = "differs" if check else "repaired"
    else:
        outcome = "unchanged"
    return {
        "topic": plan.spec.name,
        "outcome": outcome,
        "ok": result.ok,
        "repairs": [
            {"key": repair.key, "old": repair.old, "new": repair.new} for repair in plan.repairs
        ],
        "refusals": list(plan.refusals),
        "error": result.error,
    }
