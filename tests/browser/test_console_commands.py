"""`punctual console`, `list`, `show` and the completion of ids, as a person runs them."""

import json
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner, Result
from punctual_worker.cli import main
from support.console import ConsoleApi
from support.eventually import eventually
from support.processes import Part
from support.scheduler import RunningScheduler

TOKEN = "a-long-enough-token"


def punctual(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environment)


def test_list_and_show_ask_the_console(console: ConsoleApi, orders: str) -> None:
    hostile = "command-1 \x1b[31m"
    for id in ("command-0", hostile):
        console.send(
            "POST", "/schedules", {"deliverTo": orders, "delay": "1h", "id": id, "key": "k"}
        )
    where = {"PUNCTUAL_CONSOLE_URL": console.url}
    listed = punctual("list", "--id", "command-", "--sort", "id", **where)
    assert listed.exit_code == 0, listed.output
    assert [line.split("  ")[-1] for line in listed.output.splitlines()] == [
        "command-0",
        "command-1 \\x1b[31m",
    ], "control characters are shown, not sent to the terminal"
    as_json = json.loads(
        punctual("list", "--id", "command-", "--json", "--limit", "1", **where).stdout
    )
    assert len(as_json) == 1
    shown = punctual("show", "command-0", **where)
    assert f"to       {orders}" in shown.output
    assert json.loads(punctual("show", "command-0", "--json", **where).output)["key"]["text"] == "k"
    console.send("POST", "/schedule/pause", id="command-0")
    paused = punctual("list", "--id", "command-", "--paused", **where)
    assert [line.split()[1] for line in paused.output.splitlines()] == ["paused"]
    assert "state    paused" in punctual("show", "command-0", **where).output
    console.send("DELETE", "/schedule", id="command-0")
    gone = eventually(
        lambda: "Cancelled" in (told := punctual("show", "command-0", **where)).output and told, 30
    )
    assert gone.exit_code == 0
    assert "state    not pending" in gone.output
    missing = punctual("show", "nothing-here", **where)
    assert (missing.exit_code, missing.output) == (
        2,
        "Error: Nothing waits under the id nothing-here.\n",
    )


def test_ids_are_completed(
    console: ConsoleApi, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"deliverTo": orders, "delay": "1h", "id": "completed-1", "key": "k"}
    console.send("POST", "/schedules", made)
    assert "_PUNCTUAL_COMPLETE" in punctual("completion", "bash").output
    bash = get_completion_class("bash")
    assert bash is not None
    shell = bash(main, {}, "punctual", "_PUNCTUAL_COMPLETE")
    monkeypatch.setenv("PUNCTUAL_CONSOLE_URL", console.url)
    assert [item.value for item in shell.get_completions(["show"], "comp")] == ["completed-1"]
    monkeypatch.setenv("PUNCTUAL_CONSOLE_URL", "http://127.0.0.1:1")
    assert shell.get_completions(["show"], "comp") == []


def test_without_a_console_a_sentence_says_so() -> None:
    result = punctual("list", "--console-url", "http://127.0.0.1:1")
    assert result.exit_code == 2
    assert "There is no console at http://127.0.0.1:1" in result.output


def test_the_program_serves_with_a_token_and_ends_when_told(
    scheduler: RunningScheduler, tmp_path: Path
) -> None:
    part = Part(
        "console",
        bootstrap_servers=scheduler.bootstrap_servers,
        app_id=scheduler.topics.app_id,
        folder=tmp_path,
        console_token=TOKEN,
    )
    with part:
        url = f"http://127.0.0.1:{part._port}"
        assert ConsoleApi(url).ask("GET", "/api/v1/status").status == 401
        listed = eventually(
            lambda: punctual("list", PUNCTUAL_CONSOLE_URL=url, PUNCTUAL_CONSOLE_TOKEN=TOKEN), 10
        )
        assert listed.exit_code == 0, listed.output
        assert part.stop() == 0
    assert TOKEN not in part.log()
