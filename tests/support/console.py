"""A test's hand on a console: its API with plain HTTP, nothing of ours."""

import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from support.eventually import eventually


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)


@dataclass
class ConsoleApi:
    """Talks to one console."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)

    def ask(
        self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str
    ) -> Answer:
        """One request; any status is an answer."""
        data = raw if body is None else json.dumps(body).encode()
        given = {**self.headers, **{name.replace("_", "-"): text for name, text in headers.items()}}
        if body is not None:
            given.setdefault("content-type", "application/json")
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=given)
        try:
            with _no_redirects.open(request, timeout=60) as answer:
                return Answer(answer.status, _lower(answer.headers), answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _lower(error.headers), error.read().decode())

    def get(self, path: str, **query: object) -> Any:
        """The body of a good answer."""
        asked = urllib.parse.urlencode({name: value for name, value in query.items() if value})
        answer = self.ask("GET", f"/api/v1{path}?{asked}")
        assert answer.status == 200, (path, answer)
        return answer.body

    def send(self, method: str, path: str, body: Any = None, **query: object) -> Any:
        """A change that must be seen in time."""
        asked = urllib.parse.urlencode({"wait": 30, **query})
        answer = self.ask(method, f"/api/v1{path}?{asked}", body)
        assert answer.status == 200, (path, answer)
        return answer.body

    def ids(self, **query: object) -> list[str | None]:
        """Ids of a list."""
        return [each["id"] for each in self.get("/schedules", **query)["schedules"]]

    def wait_ready(self) -> None:
        eventually(
            lambda: self.ask("GET", "/readyz").status == 200, 60, lambda: self.ask("GET", "/readyz")
        )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: object) -> None:
        return None


_no_redirects = urllib.request.build_opener(_NoRedirects)


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
