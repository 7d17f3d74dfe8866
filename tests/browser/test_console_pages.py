"""The pages as a person uses them, in a real Chromium."""

from collections.abc import Callable

from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select
from support.console import ConsoleApi
from support.eventually import eventually
from support.scheduler import RunningScheduler, at

Picture = Callable[[str], None]
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"


def find(page: Chrome, selector: str) -> WebElement:
    return page.find_element(By.CSS_SELECTOR, selector)


def texts(page: Chrome, selector: str) -> list[str]:
    """Of all that match, read in one step: while a page is left, an element may be gone."""
    script = "return [...document.querySelectorAll(arguments[0])].map(each => each.innerText)"
    found: list[str] = page.execute_script(script, selector)
    return found


def fill(page: Chrome, **fields: str) -> None:
    for name, text in fields.items():
        element = find(page, f"[name='{name.replace('_', '-')}']")
        element.clear()
        element.send_keys(text)


def press(page: Chrome, name: str) -> None:
    """The button with this accessible name; returns on the next page."""
    (button,) = [
        each for each in page.find_elements(By.TAG_NAME, "button") if each.accessible_name == name
    ]
    old = page.find_elements(By.TAG_NAME, "html")
    button.click()
    # between two pages there is none at all
    eventually(
        lambda: page.find_elements(By.TAG_NAME, "html") not in ([], old),
        90,
        f"the page after {name}",
    )


def outcome(page: Chrome) -> str:
    return find(page, "#outcome").text


def ids(page: Chrome) -> list[str]:
    return texts(page, "td.id a")


def search(page: Chrome, console: ConsoleApi, prefix: str) -> list[str]:
    page.get(f"{console.url}/pending")
    fill(page, id=prefix)
    press(page, "Search")
    return ids(page)


def create(page: Chrome, console: ConsoleApi, to: str, id: str, **more: str) -> None:
    page.get(f"{console.url}/create")
    fields = {"to": to, "when": "1h", "id": id, "key": "customer-7", "value": '{"total": 12.5}'}
    fill(page, **{**fields, **more})


def test_create_find_reschedule_cancel(
    page: Chrome, console: ConsoleApi, orders: str, picture: Picture
) -> None:
    create(page, console, orders, "page-1", headers="trace: abc\nempty:\nnull")
    picture("create")
    press(page, "Create")
    assert outcome(page) == "pending"

    assert search(page, console, "page-1") == ["page-1"]
    find(page, "td.id a").click()
    assert find(page, "h1").text.startswith("page-1")
    text = find(page, "main").text
    assert "customer-7" in text
    assert '"total": 12.5' in text
    assert "trace" in text

    fill(page, when="2031-05-06T07:08:09Z")
    press(page, "Reschedule")
    assert outcome(page) == "pending"
    page.get(f"{console.url}/schedule?id=page-1")
    moment = find(page, ".facts time")
    assert moment.get_attribute("datetime") == "2031-05-06T07:08:09.000Z"
    assert "2031-05-06 09:08:09.000" in moment.text, "in the viewer's zone"
    assert "07:08:09Z" in moment.text, "and UTC beside it"
    picture("schedule")

    press(page, "Cancel")
    assert outcome(page) == "cancelled"
    assert search(page, console, "page-1") == []
    page.get(f"{console.url}/schedule?id=page-1")
    assert "Cancelled" in find(page, "main").text, "its story stays"


def test_edit_and_run_now(page: Chrome, console: ConsoleApi, scheduler: RunningScheduler) -> None:
    topic = scheduler.new_destination("page")
    create(page, console, topic, "page-2")
    press(page, "Create")
    page.get(f"{console.url}/schedule?id=page-2")
    find(page, "a.button").click()
    assert find(page, "h1").text == "Replace page-2"
    fill(page, value="line one\nline two")
    press(page, "Replace")
    assert outcome(page) == "pending"
    page.get(f"{console.url}/schedule?id=page-2")
    press(page, "Run now")
    assert outcome(page) == "delivered"
    (record,) = scheduler.delivered(topic, 1)
    assert (record.key, record.value) == (b"customer-7", b"line one\nline two")


def test_pause_and_resume(page: Chrome, console: ConsoleApi, orders: str, picture: Picture) -> None:
    create(page, console, orders, "page-7", when="2031-05-06T07:08:09Z")
    press(page, "Create")
    assert outcome(page) == "pending"
    page.get(f"{console.url}/schedule?id=page-7")
    press(page, "Pause")
    assert outcome(page) == "paused"

    page.get(f"{console.url}/schedule?id=page-7")
    assert texts(page, "h1 .pill") == ["paused"]
    facts = " ".join(texts(page, ".facts"))
    assert "Was to be due" in facts
    assert "2031-05-06" in facts
    assert "9999" not in facts
    picture("paused")
    page.get(f"{console.url}/pending?id=page-7&paused=yes")
    assert ids(page) == ["page-7"]
    assert texts(page, "td .pill") == ["paused"]
    page.get(f"{console.url}/pending?id=page-7&paused=no")
    assert ids(page) == []
    page.get(console.url)
    assert int(texts(page, "[data-figure='paused']")[0]) >= 1

    page.get(f"{console.url}/schedule?id=page-7")
    press(page, "Resume")
    assert outcome(page) == "resumed"
    eventually(lambda: console.get("/schedule", id="page-7")["story"][-1]["event"] == "Resumed", 30)
    page.get(f"{console.url}/schedule?id=page-7")
    assert texts(page, "h1 .pill") == ["pending"]
    assert [event for event in texts(page, ".story b") if event in ("Paused", "Resumed")] == [
        "Paused",
        "Resumed",
    ]
    press(page, "Cancel")
    assert outcome(page) == "cancelled"


def test_edit_one_that_recurs(page: Chrome, console: ConsoleApi, orders: str) -> None:
    made = {"deliverTo": orders, "cron": "0 9 * * *", "timezone": "Europe/Berlin", "id": "page-8"}
    console.send("POST", "/schedules", {**made, "key": "k", "value": "before"})
    page.get(f"{console.url}/schedule?id=page-8")
    assert len(texts(page, ".facts .fire")) == 3
    find(page, "a.button").click()
    eventually(lambda: texts(page, "h1") == ["Replace page-8"], 30)
    assert find(page, "[name='cron']").get_attribute("value") == "0 9 * * *"
    fill(page, cron="0 9 32 * *")
    press(page, "Show next fires")
    assert "0 9 32 * *" in texts(page, "#fault")[0]
    fill(page, cron="30 10 * * *", timezone="UTC", value="after")
    press(page, "Show next fires")
    fires = texts(page, "#fires li")
    assert len(fires) == 5
    assert all("10:30:00Z" in fire for fire in fires), fires
    press(page, "Replace")
    assert outcome(page) == "pending"
    shown = eventually(
        lambda: (
            (found := console.get("/schedule", id="page-8"))["value"]["text"] == "after" and found
        ),
        30,
    )
    assert (shown["schedule"]["cron"], shown["schedule"]["timezone"]) == ("30 10 * * *", "UTC")
    assert shown["schedule"]["nextFires"][0].endswith("T10:30:00.000Z")
    page.get(f"{console.url}/recurring")
    assert "page-8" in ids(page)
    console.send("DELETE", "/schedule", id="page-8")


def test_a_rejection_is_repaired(
    page: Chrome, console: ConsoleApi, orders: str, picture: Picture
) -> None:
    create(page, console, "no such topic", "page-3", when="tomorrow at nine")
    press(page, "Create")
    assert outcome(page) == "rejected"
    assert "invalid-deliver-at" in find(page, "main").text
    find(page, "a.button.primary").click()
    picture("rejection")
    area = find(page, "textarea[name='headers']")
    repaired = area.get_attribute("value").replace("no such topic", orders)
    area.clear()
    area.send_keys(repaired.replace("tomorrow at nine", at(3600)))
    press(page, "Resend")
    assert outcome(page) == "pending"
    assert search(page, console, "page-3") == ["page-3"]
    page.get(f"{console.url}/rejections")
    Select(find(page, "select[name='code']")).select_by_visible_text("invalid-deliver-at")
    press(page, "Search")
    assert "page-3" in ids(page)


def test_hostile_payloads_are_text(
    page: Chrome, console: ConsoleApi, scheduler: RunningScheduler, orders: str
) -> None:
    hostile = f"page-4 {HOSTILE}"
    raw = HOSTILE.encode()
    headers = {"deliver-to": orders, "deliver-at": at(3600), "request-id": hostile}
    scheduler.request(headers, key=raw, value=raw, headers=[(HOSTILE, raw)])
    scheduler.request(
        {**headers, "deliver-to": HOSTILE}, key=raw, value=raw, headers=[(HOSTILE, raw)]
    )
    eventually(lambda: console.ids(idPrefix="page-4"), 30)
    eventually(lambda: console.get("/rejections", idPrefix="page-4")["rejections"], 30)
    assert search(page, console, "page-4") == [hostile]
    for path in ("/pending?id=page-4", "/rejections?id=page-4"):
        page.get(f"{console.url}{path}")
        assert ids(page) == [hostile]
        find(page, "td.id a").click()
        text = find(page, "main").text
        assert text.count(HOSTILE) >= 3, "id, key, value and headers, as they are"
        assert not page.find_elements(By.CSS_SELECTOR, "main script, main img")
        assert page.title != "owned"
    page.get(f"{console.url}/pending?id={HOSTILE}&to={HOSTILE}&sort={HOSTILE}")
    assert not page.find_elements(By.CSS_SELECTOR, "main script, main img")


def test_change_all_that_match(page: Chrome, console: ConsoleApi, orders: str) -> None:
    for number in range(5):
        console.send(
            "POST",
            "/schedules",
            {"deliverTo": orders, "delay": "1h", "id": f"page-5-{number}", "key": "k"},
        )
    search(page, console, "page-5-")
    find(page, ".bulk summary").click()
    press(page, "Count what to cancel")
    assert find(page, "#count").text == "5"
    fill(page, count="4")
    press(page, "Cancel")
    assert "confirm that number" in find(page, "main").text
    page.back()
    fill(page, count="5")
    press(page, "Cancel")
    # the page loads itself anew while the job runs
    eventually(lambda: texts(page, "#state") == ["done"], 20)
    eventually(lambda: not console.ids(idPrefix="page-5-"), 20)


def test_keys_reach_everything(page: Chrome, console: ConsoleApi, orders: str) -> None:
    console.send(
        "POST", "/schedules", {"deliverTo": orders, "delay": "1h", "id": "page-6", "key": "k"}
    )
    page.get(f"{console.url}/pending")
    body = find(page, "body")
    body.send_keys("/")
    assert page.switch_to.active_element.get_attribute("name") == "id"
    page.switch_to.active_element.send_keys("page-6" + Keys.ENTER)
    eventually(lambda: ids(page) == ["page-6"], 10)
    find(page, "body").send_keys("j")
    page.switch_to.active_element.send_keys(Keys.ENTER)
    eventually(lambda: texts(page, "h1")[:1] and texts(page, "h1")[0].startswith("page-6"), 10)
    for path in ("/", "/pending", "/create", "/rejections", "/schedule?id=page-6"):
        page.get(f"{console.url}{path}")
        controls = page.find_elements(By.CSS_SELECTOR, "main input:not([type=hidden]), button, a")
        unnamed = [e.get_attribute("outerHTML") for e in controls if is_unnamed(e)]
        assert not unnamed, (path, unnamed)


def is_unnamed(element: WebElement) -> bool:
    return element.is_displayed() and not element.accessible_name


def test_pages_look_right_light_dark_and_narrow(
    page: Chrome, console: ConsoleApi, orders: str, picture: Picture
) -> None:
    for number in range(30):
        body = {"deliverTo": orders, "delay": f"{1 + number * number}m", "id": f"shown-{number}"}
        console.ask("POST", "/api/v1/schedules?wait=0", {**body, "key": "k", "value": "hello"})
    eventually(lambda: len(console.ids(idPrefix="shown-")) == 30, 20)
    try:
        for theme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": theme}
            page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            page.get(console.url)
            assert int(find(page, "[data-figure='pending']").text) >= 30
            assert page.find_elements(By.CSS_SELECTOR, "svg.chart rect")
            picture(f"overview-{theme}")
            page.get(f"{console.url}/pending?id=shown-")
            picture(f"pending-{theme}")
        light = {"name": "prefers-color-scheme", "value": "light"}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [light]})
        size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for path in ("/", "/pending", "/create", "/rejections", "/schedule?id=shown-1"):
            page.get(f"{console.url}{path}")
            width = page.execute_script("return document.documentElement.scrollWidth")
            assert width <= 390, f"{path} is {width} wide"
        page.get(f"{console.url}/pending?id=shown-")
        picture("narrow")
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
