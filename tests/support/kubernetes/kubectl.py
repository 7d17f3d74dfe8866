"""kubectl as a test uses it: the real program, with its answers as Python objects."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from support.eventually import eventually


class KubectlError(Exception):
    """kubectl ended with an error; the text is what it said."""


@dataclass(frozen=True)
class Kubectl:
    """One kubeconfig and one namespace; each call is one run of the program."""

    program: Sequence[str]
    kubeconfig: Path
    namespace: str = "default"

    def __call__(self, *words: str, stdin: str | None = None, timeout: float = 120) -> str:
        """What it printed; what it complained about is raised."""
        done = subprocess.run(
            [*self.program, "--kubeconfig", str(self.kubeconfig), "-n", self.namespace, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise KubectlError(f"{done.stderr.strip()}\n{done.stdout.strip()}".strip())
        return done.stdout

    def apply(self, *objects: Mapping[str, Any] | str | Path, server_side: bool = False) -> str:
        """Apply objects, YAML texts or files."""
        texts = [
            each.read_text()
            if isinstance(each, Path)
            else each
            if isinstance(each, str)
            else yaml.safe_dump(dict(each))
            for each in objects
        ]
        flags = ["--server-side"] if server_side else []
        return self("apply", *flags, "-f", "-", stdin="\n---\n".join(texts))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """One object, or a `KubectlError` that says `NotFound`."""
        found: dict[str, Any] = json.loads(self("get", kind, name, "-o", "json"))
        return found

    def find(self, kind: str, name: str) -> dict[str, Any] | None:
        """One object, or None if it is not there."""
        text = self("get", kind, name, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def list(self, kind: str, *, selector: str = "") -> list[dict[str, Any]]:
        """All objects of a kind in the namespace."""
        flags = ["-l", selector] if selector else []
        found: list[dict[str, Any]] = json.loads(self("get", kind, "-o", "json", *flags))["items"]
        return found

    def delete(self, kind: str, name: str, *, wait: bool = False) -> str:
        """Delete an object; without `wait` it may still be there afterwards."""
        return self("delete", kind, name, f"--wait={str(wait).lower()}", "--ignore-not-found")

    def can(self, verb: str, resource: str, *, user: str = "", name: str = "") -> bool:
        """`kubectl auth can-i`, asked for another user if one is given."""
        words = ["auth", "can-i", verb, f"{resource}/{name}" if name else resource]
        words += ["--as", user] if user else []
        try:
            return self(*words).strip() == "yes"
        except KubectlError as error:
            if str(error).splitlines()[-1].startswith("no"):
                return False
            raise

    def condition(self, kind: str, name: str, condition: str) -> dict[str, Any]:
        """A condition of an object's status; empty while there is none."""
        found = self.find(kind, name) or {}
        for each in found.get("status", {}).get("conditions", []):
            if each["type"] == condition:
                return dict(each)
        return {}

    def wait_condition(
        self, kind: str, name: str, condition: str, status: str = "True", *, timeout: float = 60
    ) -> dict[str, Any]:
        """The condition, once it has this status."""

        def has_it() -> dict[str, Any] | None:
            found = self.condition(kind, name, condition)
            return found if found.get("status") == status else None

        return eventually(
            has_it, timeout, lambda: self("get", kind, name, "-o", "yaml"), interval=0.2
        )

    def inside(self, namespace: str) -> "Kubectl":
        """The same for another namespace."""
        return Kubectl(self.program, self.kubeconfig, namespace)
