"""When what happened between `kubectl apply` and Ready, and whose time it was.

Kubernetes' own timestamps are whole seconds, so the changes are watched as they come.
"""

import contextlib
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from support.kubernetes.kubectl import Kubectl

_COMPONENT = "app.kubernetes.io/component"
_NEEDED = ("intake", "dispatcher")
_KINDS = ("schedulers.punctual.dev", "deployments", "pods")
_NEWEST = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?Z")


@dataclass
class Timeline:
    """Seconds since 1970 of each thing's first time, by a name that begins with whose it is."""

    begun: float
    first: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, at: float) -> None:
        self.first.setdefault(name, at)

    def see(self, thing: Mapping[str, Any], at: float) -> None:
        """What a watch has told."""
        status = thing.get("status", {})
        conditions = {c["type"] for c in status.get("conditions", ()) if c["status"] == "True"}
        labels = thing["metadata"].get("labels", {})
        part = labels.get(_COMPONENT, labels.get("spark-role", "?"))
        if thing["kind"] == "Scheduler":
            for condition in conditions:
                self.note(f"Scheduler: {condition}", at)
        elif thing["kind"] == "Deployment":
            self.note(f"{part}: Deployment made", at)
            if status.get("readyReplicas"):
                self.note(f"{part}: Deployment has a ready pod", at)
        else:
            self.note(f"{part}: pod made", at)
            for container in status.get("containerStatuses", ()):
                if "running" in container["state"]:
                    self.note(f"{part}: container is told to run", at)
            if "Ready" in conditions:
                self.note(f"{part}: pod is told to be ready", at)

    def read_log(self, part: str, log: str, *, ready: str) -> None:
        """What a container wrote, each line with its time; it serves from the line `ready` on."""
        for line in log.splitlines():
            if (at := _time_of(line)) is None:
                continue
            self.note(f"{part}: first line of its log", at)
            if ready in line:
                self.note(f"{part}: serves, by its log", at)

    @property
    def own_start(self) -> float:
        """How long the part that served last took from its process' start."""
        # Ready does not wait for the console
        served = {part: self.first[f"{part}: serves, by its log"] for part in _NEEDED}
        last = max(served, key=lambda part: served[part])
        return served[last] - self.first[f"{last}: process started"]

    def text(self) -> str:
        """For people: in order, and how much was nobody's but Kubernetes' and the operator's."""
        rows = sorted((at - self.begun, name) for name, at in self.first.items())
        total = self.first["Scheduler: Ready"] - self.begun
        lines = [f"{after:7.2f} s  {name}" for after, name in rows]
        lines.append(
            f"from kubectl apply to Ready: {total:.1f} s, of which the slowest worker's own start "
            f"{self.own_start:.1f} s, everything else {total - self.own_start:.1f} s"
        )
        return "\n".join(lines)


@contextlib.contextmanager
def watched(kubectl: Kubectl) -> Iterator[Timeline]:
    """Watches until the end of the block; to be entered before `kubectl apply`."""
    timeline = Timeline(time.time())
    watches: list[subprocess.Popen[str]] = []
    threads = []
    base = [*kubectl.program, "--kubeconfig", str(kubectl.kubeconfig), "-n", kubectl.namespace]
    try:
        for kind in _KINDS:
            watch = subprocess.Popen(
                [*base, "get", kind, "--watch", "-o", "json"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            watches.append(watch)
            thread = threading.Thread(target=_follow, args=(watch, timeline), daemon=True)
            thread.start()
            threads.append(thread)
        timeline.begun = time.time()
        yield timeline
    finally:
        for watch in watches:
            watch.kill()
            watch.wait()
        for thread in threads:
            thread.join(10)
        for watch in watches:
            if watch.stdout is not None:
                watch.stdout.close()


def _follow(watch: "subprocess.Popen[str]", timeline: Timeline) -> None:
    """kubectl prints one object after the other, each over many lines; the last one is `}`."""
    assert watch.stdout is not None
    lines: list[str] = []
    for line in watch.stdout:
        lines.append(line)
        if line == "}\n":
            thing = json.loads("".join(lines))
            lines.clear()
            for each in thing.get("items", [thing]):
                timeline.see(each, time.time())


def _time_of(line: str) -> float | None:
    """A container's log has the time of each line before it, to the nanosecond."""
    found = _NEWEST.match(line)
    if found is None:
        return None
    whole = datetime.fromisoformat(f"{found[1]}+00:00").timestamp()
    return whole + float(found[2] or 0)
