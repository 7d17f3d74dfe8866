"""`punctual-operator check`: whether an operator is at work here, for `helm test`.

Asked are the API server, which serves the definition and keeps the Lease that a working operator
renews, and the operator itself, if it can be reached under a URL.
"""

import argparse
import http.client
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import urllib3
from kubernetes.client import ApiClient, ApiException, CoordinationV1Api, CustomObjectsApi

from punctual_operator.api.names import GROUP, PLURAL, VERSION
from punctual_operator.settings import OperatorSettings

_LOOK_SECONDS: Final = 1.0
_TIMEOUT_SECONDS: Final = 5.0


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command's options; ends the process if they are none, or if help is asked for."""
    return _parser().parse_args(words)


def run(
    options: argparse.Namespace, settings: OperatorSettings, *, namespace: str, api: ApiClient
) -> int:
    """Say what is wrong; the exit status. What is just starting is waited for."""
    url: str | None = options.url
    looks: list[Callable[[], str | None]] = [
        lambda: _definition(api),
        lambda: _lease(api, settings, namespace),
    ]
    if url is not None:
        looks += [lambda: _answer(f"{url}/livez"), lambda: _answer(f"{url}/readyz")]
    deadline = time.monotonic() + options.wait
    while faults := [fault for look in looks if (fault := look()) is not None]:
        if time.monotonic() > deadline:
            _tell(*faults)
            return 1
        time.sleep(_LOOK_SECONDS)
    asked = f", and answers under {url}" if url is not None else ""
    _tell(f"The definition is served, and an operator holds the Lease{asked}.")
    return 0


def _tell(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="punctual-operator")
    commands = parser.add_subparsers(required=True, metavar="check")
    check = commands.add_parser("check", help="whether an operator is at work here")
    check.add_argument("url", nargs="?", help="where it serves metrics and health")
    check.add_argument("--wait", type=float, default=60.0, metavar="SECONDS", help="for a good end")
    return parser


def _definition(api: ApiClient) -> str | None:
    try:
        found = CustomObjectsApi(api).get_api_resources(
            GROUP, VERSION, _request_timeout=_TIMEOUT_SECONDS
        )
    except (ApiException, urllib3.exceptions.HTTPError) as error:
        return f"{PLURAL}.{GROUP}: {_brief(error)}: is the definition installed?"
    if any(resource.name == PLURAL for resource in found.resources):
        return None
    return f"{PLURAL}.{GROUP} is not served: is the definition installed?"


def _lease(api: ApiClient, settings: OperatorSettings, namespace: str) -> str | None:
    name = settings.lease_name
    try:
        lease = CoordinationV1Api(api).read_namespaced_lease(
            name, namespace, _request_timeout=_TIMEOUT_SECONDS
        )
    except (ApiException, urllib3.exceptions.HTTPError) as error:
        return f"Lease {namespace}/{name}: {_brief(error)}: has an operator ever started?"
    spec = lease.spec
    if spec is None or not spec.holder_identity or spec.renew_time is None:
        return f"Lease {namespace}/{name} is held by nobody: look at the operator's log."
    age = (datetime.now(UTC) - spec.renew_time).total_seconds()
    if age <= settings.lease_seconds:
        return None
    return (
        f"Lease {namespace}/{name} was renewed {age:.0f} s ago by {spec.holder_identity}: "
        "look at the operator's log."
    )


def _answer(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS):  # noqa: S310 our own Service
            return None
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        return f"{url}: {error}"


def _brief(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error)[:300]
