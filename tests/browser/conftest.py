"""Everything together once: broker, intake, dispatcher, console, and a real Chromium."""

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from punctual_worker.console import forms
from punctual_worker.console.main import running
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.settings import Settings
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from support.console import ConsoleApi
from support.scheduler import RunningScheduler

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")


_HERE = Path(__file__).parent
_started: list[RunningScheduler] = []


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """These processes end with the last test here: the others need the processor."""
    if _started and (nextitem is None or nextitem.path.parent != _HERE):
        _started.pop().stop()


@pytest.fixture(scope="session")
def scheduler(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningScheduler]:
    app_id = f"console-{uuid.uuid4().hex[:6]}"
    running_scheduler = RunningScheduler(
        broker.bootstrap_servers, app_id, tmp_path_factory.mktemp("scheduler")
    )
    try:
        running_scheduler.start()
        _started.append(running_scheduler)
        yield running_scheduler
    finally:
        running_scheduler.stop()


@pytest.fixture(scope="session")
def console(
    scheduler: RunningScheduler, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleApi]:
    settings = Settings(
        bootstrap_servers=scheduler.bootstrap_servers,
        app_id=scheduler.topics.app_id,
        data_dir=tmp_path_factory.mktemp("console"),
        http_port=0,
        console_writes_per_second=1_000,
        console_parts=(
            f"intake=http://127.0.0.1:{scheduler.intake._port}",
            f"dispatcher=http://127.0.0.1:{scheduler.dispatcher._port}",
        ),
    )
    with pytest.MonkeyPatch.context() as patch, running(settings) as url:
        patch.setattr(forms, "_WAIT_SECONDS", 60.0)  # a busy machine is not what is tested here
        api = ConsoleApi(url)
        api.wait_ready()
        yield api


@pytest.fixture(scope="session")
def orders(scheduler: RunningScheduler) -> str:
    """A destination."""
    return scheduler.new_destination("orders")


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip(
            "chromium and chromedriver are not installed: apt-get install chromium chromium-driver"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--window-size=1000,780",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Europe/Berlin"})
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: webdriver.Chrome, console: ConsoleApi) -> Iterator[webdriver.Chrome]:
    """The browser; afterwards no script may have failed and nothing been blocked."""
    browser.get_log("browser")
    yield browser
    told = [
        entry["message"]
        for entry in browser.get_log("browser")
        if entry["level"] == "SEVERE" and "status of 4" not in entry["message"]
    ]
    assert not told, told


@pytest.fixture
def picture(browser: webdriver.Chrome, request: pytest.FixtureRequest) -> object:
    """Takes a screenshot for the documentation when asked to (`PUNCTUAL_SCREENSHOTS=1`)."""
    folder = Path(request.config.rootpath) / "docs" / "images"

    def take(name: str) -> None:
        if os.environ.get("PUNCTUAL_SCREENSHOTS"):
            folder.mkdir(parents=True, exist_ok=True)
            assert browser.save_screenshot(str(folder / f"console-{name}.png"))

    return take
