"""`punctual list` and `show`: what is pending, asked of the console's API; shell completion."""

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from punctual_worker.commands.options import with_settings
from punctual_worker.errors import PunctualError
from punctual_worker.settings import Settings, load_settings

_TIMEOUT_SECONDS: Final = 30.0
_COMPLETION_SECONDS: Final = 2.0
_PAGE: Final = 1_000
_JSON_OPTION: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class ConsoleClient:
    """Asks the console that the settings name."""

    def __init__(self, settings: Settings, *, timeout: float = _TIMEOUT_SECONDS) -> None:
        self._url = settings.console_url.rstrip("/")
        self._timeout = timeout
        self._headers = {"accept": "application/json"}
        token = settings.console_token.get_secret_value() if settings.console_token else ""
        if settings.console_token_file is not None:
            token = settings.console_token_file.read_text().strip()
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        if not self._url.startswith(("http://", "https://")):
            raise PunctualError(f"console-url: {self._url!r} is given, want http://host:port.")

    def get(self, path: str, **query: object) -> Any:
        """A JSON answer; `PunctualError` with the console's own words if there is none."""
        given = {name: str(value) for name, value in query.items() if value not in (None, "")}
        url = f"{self._url}/api/v1{path}?{urllib.parse.urlencode(given)}"
        request = urllib.request.Request(url, headers=self._headers)  # noqa: S310 checked above
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise PunctualError(_detail(error)) from error
        except (OSError, ValueError) as error:
            raise PunctualError(
                f"There is no console at {self._url}: start it with `punctual console` or "
                "`punctual up`, or say where it is with --console-url."
            ) from error


@click.command("list")
@with_settings("console_url", "console_token_file", kafka=False)
@click.option("--id", "id_prefix", help="How the id begins.")
@click.option("--to", "destination", help="Destination topic, or its beginning with *.")
@click.option("--from", "due_from", metavar="TIME", help="Due at or after: ISO 8601, or 15m.")
@click.option("--until", "due_to", metavar="TIME", help="Due before.")
@click.option("--recurring/--once", default=None, help="Only those that recur, or do not.")
@click.option("--paused/--not-paused", default=None, help="Only those that are paused, or are not.")
@click.option(
    "--sort", type=click.Choice(["due", "-due", "id", "-id"]), default="due", show_default=True
)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@_JSON_OPTION
def list_pending(
    settings: Settings,
    *,
    id_prefix: str | None,
    destination: str | None,
    due_from: str | None,
    due_to: str | None,
    recurring: bool | None,
    paused: bool | None,
    sort: str,
    limit: int,
    as_json: bool,
) -> None:
    """List what is pending."""
    client = ConsoleClient(settings)
    query = {
        "idPrefix": id_prefix,
        "destination": destination,
        "dueFrom": due_from,
        "dueTo": due_to,
        "recurring": None if recurring is None else str(recurring).lower(),
        "paused": None if paused is None else str(paused).lower(),
        "sort": sort,
    }
    found: list[dict[str, Any]] = []
    cursor = None
    while len(found) < limit:
        page = client.get(
            "/schedules", **query, limit=min(limit - len(found), _PAGE), cursor=cursor
        )
        found += page["schedules"]
        cursor = page["nextCursor"]
        if cursor is None:
            break
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for schedule in found:
        click.echo(_line(schedule))
    if cursor is not None:
        click.echo(f"there are more: --limit {limit * 10}", err=True)
    elif not found:
        click.echo("nothing", err=True)


def _complete_id(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Ids that begin like this, if a console answers quickly; a shell shows no errors."""
    import os

    try:
        settings = load_settings(flags={}, environment=os.environ, config_file=None)
        client = ConsoleClient(settings, timeout=_COMPLETION_SECONDS)
        page = client.get("/schedules", idPrefix=incomplete, sort="id", limit=50)
    except Exception:
        return []
    return [CompletionItem(each["id"]) for each in page["schedules"]]


@click.command()
@with_settings("console_url", "console_token_file", kafka=False)
@click.argument("request_id", metavar="ID", shell_complete=_complete_id)
@_JSON_OPTION
def show(settings: Settings, *, request_id: str, as_json: bool) -> None:
    """Show one schedule with its headers, payload and story."""
    client = ConsoleClient(settings)
    try:
        detail = client.get("/schedule", id=request_id)
    except PunctualError:
        if not _tell_story(client, request_id, as_json=as_json):
            raise
        return
    if as_json:
        click.echo(json.dumps(detail, indent=2, ensure_ascii=False))
        return
    schedule = detail["schedule"]
    facts = [
        ("id", schedule["id"]),
        ("state", schedule["state"]),
        ("was due" if schedule["paused"] else "due", schedule["due"]),
        ("to", schedule["destination"]),
        ("cron", schedule["cron"]),
        ("zone", schedule["timezone"]),
        ("next", ", ".join(schedule["nextFires"]) or None),
        ("expires", schedule["expiresAt"]),
        ("request", detail["source"]),
        ("key", _payload(detail["key"])),
        ("value", _payload(detail["value"])),
    ]
    for name, value in facts:
        if value is not None:
            click.echo(f"{name:<8} {_printable(value)}")
    for header in detail["headers"]:
        click.echo(
            f"header   {_printable(header['name'])}: {_printable(_payload(header['value']))}"
        )
    _print_events(detail["story"])


def _tell_story(client: ConsoleClient, request_id: str, *, as_json: bool) -> bool:
    """What became of one that does not wait any more; false if nothing is known."""
    story = client.get("/story", id=request_id)
    if not story["events"] and not story["rejections"]:
        return False
    if as_json:
        click.echo(json.dumps(story, indent=2, ensure_ascii=False))
        return True
    click.echo(f"id       {_printable(request_id)}\nstate    not pending")
    _print_events(story["events"])
    for rejection in story["rejections"]:
        codes, reason = ", ".join(rejection["codes"]), _printable(rejection["reason"])
        click.echo(f"rejected {rejection['at']} {codes}: {reason}")
    return True


def _print_events(events: list[dict[str, Any]]) -> None:
    for event in events:
        reason = f" {_printable(event['reason'])}" if event["reason"] else ""
        click.echo(f"story    {event['at']} {event['event']}{reason}")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script: eval "$(punctual completion bash)"."""
    from punctual_worker.cli import main

    kind = get_completion_class(shell)
    if kind is None:
        raise PunctualError(f"There is no completion for {shell}.")
    click.echo(kind(main, {}, "punctual", "_PUNCTUAL_COMPLETE").source())


def _line(schedule: dict[str, Any]) -> str:
    name = schedule["id"] if schedule["id"] is not None else f"({schedule['ref']})"
    words = [schedule["due"], f"{schedule['state']:<8}", schedule["destination"], _printable(name)]
    if schedule["cron"]:
        words.append(f"[{schedule['cron']}]")
    return "  ".join(words)


def _payload(payload: dict[str, Any]) -> str:
    if payload["encoding"] in ("null", "hidden"):
        return f"({payload['encoding']})"
    cut = f" ... ({payload['size']} bytes)" if payload["truncated"] else ""
    kind = "base64 " if payload["encoding"] == "base64" else ""
    return f"{kind}{payload['text']}{cut}"


def _printable(text: str) -> str:
    """A terminal obeys what is written to it: control characters are shown, not sent."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text
    )


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"The console answered with status {error.code}."
