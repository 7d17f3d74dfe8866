"""`punctual schedule`, `replace`, `cancel`, `pause`, `resume`: requests of a person or a script."""

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import click

from punctual_worker.client import (
    Client,
    Placed,
    Request,
    cancel_request,
    delivery_request,
    pause_request,
    resume_request,
)
from punctual_worker.commands.options import CONNECTION, with_settings
from punctual_worker.contract.times import format_ms, to_ms
from punctual_worker.errors import PunctualError
from punctual_worker.settings import Settings

_DURATION: Final = re.compile(r"\d+(ms|s|m|h|d)|P(?=.)[0-9.DTHMSW]+", re.IGNORECASE)
_JSON_OPTION: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_KEY_OPTION: Final = click.option(
    "--key",
    help="Record key. Requests for one id keep their order only if they have the same key.",
)


def _delivery_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.argument("value", required=False),
        click.option("--to", required=True, metavar="TOPIC", help="Destination topic."),
        click.option("--at", metavar="TIME", help="ISO 8601; without a zone it is UTC."),
        click.option("--in", "delay", metavar="DURATION", help="30s, 15m, 2h, 250ms, PT15M."),
        click.option("--cron", metavar="EXPRESSION", help="Again and again: '0 9 * * MON-FRI'."),
        click.option("--timezone", metavar="ZONE", help="Of --cron, by IANA's names; else UTC."),
        click.option("--misfire", type=click.Choice(["once", "all", "skip"]), help="Of --cron."),
        _KEY_OPTION,
        click.option("--header", "header", multiple=True, metavar="NAME=VALUE", help="Repeatable."),
        click.option("--partition", type=click.IntRange(min=0), help="Destination partition."),
        click.option("--expires-at", metavar="TIME", help="Not delivered any more after this."),
        click.option("--spread", metavar="DURATION", help="Move the time later within this."),
        click.option(
            "--value-file",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            help="Take the value from a file.",
        ),
        click.option("--null-value", is_flag=True, help="Deliver a null value (a tombstone)."),
        _JSON_OPTION,
    )
    for option in reversed(options):
        command = option(command)
    return command


def _of_a_pending_one(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        with_settings(*CONNECTION),
        click.argument("which", metavar="[ID]", required=False),
        click.option("--id", "request_id", metavar="ID", help="The same as ID."),
        _KEY_OPTION,
        _JSON_OPTION,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@with_settings(*CONNECTION)
@click.option("--id", "request_id", help="To replace or cancel it later.")
@_delivery_options
def schedule(settings: Settings, **given: Any) -> None:
    """Ask for VALUE to be delivered later ('-' reads it from stdin)."""
    _send_delivery(settings, action="ADD", **given)


@click.command()
@with_settings(*CONNECTION)
@click.option("--id", "request_id", required=True, help="Which one.")
@_delivery_options
def replace(settings: Settings, **given: Any) -> None:
    """Put another message or time in the place of a pending one."""
    _send_delivery(settings, action="REPLACE", **given)


@click.command()
@_of_a_pending_one
def cancel(settings: Settings, **given: Any) -> None:
    """Forget a pending message."""
    _steer(settings, "CANCEL", cancel_request, **given)


@click.command()
@_of_a_pending_one
def pause(settings: Settings, **given: Any) -> None:
    """Hold a pending message back, also when it falls due, until it is resumed."""
    _steer(settings, "PAUSE", pause_request, **given)


@click.command()
@_of_a_pending_one
def resume(settings: Settings, **given: Any) -> None:
    """Let a paused message go on; what fell due meanwhile follows its misfire rule."""
    _steer(settings, "RESUME", resume_request, **given)


def _steer(
    settings: Settings,
    action: str,
    request_of: Callable[..., Request],
    *,
    which: str | None,
    request_id: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    if (which is None) == (request_id is None):
        raise PunctualError("Say which one: exactly one of ID and --id ID is wanted.")
    named = which if which is not None else request_id
    request = request_of(named, key=None if key is None else key.encode())
    _send(settings, request, as_json=as_json, told={"action": action, "id": named})


def _send_delivery(
    settings: Settings,
    *,
    action: Literal["ADD", "REPLACE"],
    to: str,
    at: str | None,
    delay: str | None,
    cron: str | None,
    timezone: str | None,
    misfire: Literal["once", "all", "skip"] | None,
    request_id: str | None,
    key: str | None,
    header: tuple[str, ...],
    partition: int | None,
    expires_at: str | None,
    spread: str | None,
    as_json: bool,
    **source: Any,
) -> None:
    if sum(one is not None for one in (at, delay, cron)) != 1:
        raise PunctualError(
            "Say when: exactly one of --at TIME, --in DURATION and --cron EXPRESSION is wanted."
        )
    if cron is None and (timezone or misfire):
        raise PunctualError("--timezone and --misfire are for --cron: want both or neither.")
    moment = _moment(at, flag="--at")
    request = delivery_request(
        to,
        _value(**source),
        action=action,
        deliver_at=moment,
        delay=_duration(delay, flag="--in"),
        cron=cron,
        timezone=timezone,
        misfire=misfire,
        request_id=request_id,
        key=None if key is None else key.encode(),
        headers=[_header(pair) for pair in header],
        partition=partition,
        expires_at=_moment(expires_at, flag="--expires-at"),
        spread=_duration(spread, flag="--spread"),
    )
    told = {"action": action, "id": request_id, "to": to, "at": moment, "in": delay, "cron": cron}
    _send(settings, request, as_json=as_json, told=told)


def _send(
    settings: Settings, request: Request, *, as_json: bool, told: dict[str, str | None]
) -> None:
    with Client(settings) as client:
        placed = client.send(request)
    click.echo(_as_json(placed, told) if as_json else _as_text(placed, told))


def _as_json(placed: Placed, told: dict[str, str | None]) -> str:
    where = {"topic": placed.topic, "partition": placed.partition, "offset": placed.offset}
    return json.dumps({**{name: text for name, text in told.items() if text is not None}, **where})


def _as_text(placed: Placed, told: dict[str, str | None]) -> str:
    words = [told["action"] or ""]
    if told.get("id"):
        words.append(f"id {told['id']}")
    if told.get("to"):
        words.append(f"to {told['to']}")
    if told.get("at"):
        words.append(f"at {told['at']}")
    if told.get("in"):
        words.append(f"in {told['in']}")
    if told.get("cron"):
        words.append(f"as {told['cron']}")
    return f"{' '.join(words)}: requested, {placed}"


def _value(*, value: str | None, value_file: Path | None, null_value: bool) -> bytes | None:
    if sum((value is not None, value_file is not None, null_value)) != 1:
        raise PunctualError(
            "Say what: exactly one of VALUE ('-' reads stdin), --value-file and --null-value."
        )
    if null_value:
        return None
    if value_file is not None:
        return value_file.read_bytes()
    return sys.stdin.buffer.read() if value == "-" else (value or "").encode()


def _header(pair: str) -> tuple[str, bytes | None]:
    name, equals, value = pair.partition("=")
    if not name or not equals:
        raise PunctualError(f"--header: {pair!r} is given, want NAME=VALUE.")
    return name, value.encode()


def _moment(text: str | None, *, flag: str) -> str | None:
    """In the contract's own form, so that what this computer understood is what is asked for."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise PunctualError(
            f"{flag}: {text!r} is not a time; want ISO 8601 such as "
            f"{format_ms(to_ms(datetime.now(UTC)))}."
        ) from None
    return format_ms(to_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC)))


def _duration(text: str | None, *, flag: str) -> str | None:
    if text is not None and _DURATION.fullmatch(text) is None:
        raise PunctualError(
            f"{flag}: {text!r} is not a duration; want 250ms, 30s, 15m, 2h, 1d or PT15M."
        )
    return text
