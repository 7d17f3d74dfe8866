"""Who may do what."""

import pytest
from punctual_worker.console import security
from punctual_worker.console.security import Asking, RateLimit, RefusedError, make_policy
from punctual_worker.errors import PunctualError
from punctual_worker.settings import Settings

TOKEN = "a-long-enough-token"


def asking(method: str = "GET", address: str = "127.0.0.1", **headers: str) -> Asking:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Asking(method, "/api/v1/schedules", "http", {"host": "localhost:8080", **named}, address)


def refusal(function: object, *args: object, **kwargs: object) -> int:
    with pytest.raises(RefusedError) as caught:
        function(*args, **kwargs)  # type: ignore[operator]
    return caught.value.status


def test_a_name_that_was_rebound_to_loopback_is_refused() -> None:
    policy = make_policy(Settings())
    security.check_host(policy, asking())
    security.check_host(policy, asking(host="[::1]:8080"))
    assert refusal(security.check_host, policy, asking(host="evil.example:8080")) == 421
    named = make_policy(Settings(console_hosts="laptop.example"))
    security.check_host(named, asking(host="laptop.example"))


def test_open_to_the_network_without_users_it_is_read_only() -> None:
    assert make_policy(Settings(http_host="0.0.0.0")).read_only
    assert not make_policy(Settings(http_host="0.0.0.0", console_token=TOKEN)).read_only
    assert not make_policy(Settings()).read_only


def test_a_token_is_asked_for() -> None:
    policy = make_policy(Settings(console_token=TOKEN))
    assert refusal(security.authenticate, policy, asking(), now=0) == 401
    wrong = asking(authorization="Bearer something-else")
    assert refusal(security.authenticate, policy, wrong, now=0) == 401
    right = asking(authorization=f"Bearer {TOKEN}")
    assert security.authenticate(policy, right, now=0).user == "token"


def test_a_session_ends() -> None:
    policy = make_policy(Settings(console_token=TOKEN))
    session = security.new_session(policy, now=1000)
    cookie = asking(cookie=f"{security.SESSION_COOKIE}={session}")
    assert security.authenticate(policy, cookie, now=1001).user == "token"
    late = 1001 + security.SESSION_SECONDS
    assert refusal(security.authenticate, policy, cookie, now=late) == 401
    forged = asking(cookie=f"{security.SESSION_COOKIE}=99999999999.{'0' * 64}")
    assert refusal(security.authenticate, policy, forged, now=0) == 401


def test_a_user_is_believed_from_a_trusted_proxy_only() -> None:
    policy = make_policy(
        Settings(console_user_header="X-User", console_trusted_proxies="10.0.0.0/8")
    )
    from_proxy = asking(address="10.1.2.3", x_user="ada")
    assert security.authenticate(policy, from_proxy, now=0).user == "ada"
    for other in (asking(address="10.1.2.3"), asking(address="192.0.2.1", x_user="ada")):
        assert refusal(security.authenticate, policy, other, now=0) == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_another_sites_page_can_change_nothing(headers: dict[str, str]) -> None:
    policy = make_policy(Settings())
    assert refusal(security.check_write, policy, asking("POST", **headers)) == 403


def test_our_own_page_and_a_script_can() -> None:
    policy = make_policy(Settings())
    security.check_write(policy, asking("POST"))
    ours = asking("POST", origin="http://localhost:8080", sec_fetch_site="same-origin")
    security.check_write(policy, ours)


def test_behind_a_proxy_its_own_name_is_told_by_a_setting() -> None:
    behind = asking("POST", origin="https://console.example", sec_fetch_site="same-origin")
    assert refusal(security.check_write, make_policy(Settings()), behind) == 403
    security.check_write(make_policy(Settings(console_hosts="console.example")), behind)


def test_read_only_means_it() -> None:
    policy = make_policy(Settings(console_read_only=True))
    assert refusal(security.check_write, policy, asking("POST")) == 403


def test_changes_are_limited_per_user_and_come_back_with_time() -> None:
    now = [0.0]
    rate = RateLimit(2, clock=lambda: now[0])
    for _ in range(4):
        rate.take("ada")
    assert refusal(rate.take, "ada") == 429
    rate.take("bob")
    now[0] = 1.0
    rate.take("ada")


def test_a_token_that_could_be_guessed_is_refused() -> None:
    with pytest.raises(PunctualError, match="too short"):
        make_policy(Settings(console_token="short"))


def test_a_token_file_that_is_missing_is_told(tmp_path: object) -> None:
    with pytest.raises(PunctualError, match="console-token-file"):
        make_policy(Settings(console_token_file=f"{tmp_path}/nothing"))  # type: ignore[arg-type]
