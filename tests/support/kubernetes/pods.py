"""One pod of the test node, from its binding to the end of its deletion."""

import json
import shutil
import threading
import time
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from kubernetes import client
from support.kubernetes.commands import process_environment, resolve_command, resolve_variables
from support.kubernetes.containers import Container, Run, now
from support.kubernetes.volumes import ObjectReader, Volumes

_TICK_SECONDS = 0.05


class Treatment(Enum):
    """What becomes of the pods of a namespace."""

    RUN = "their commands run as processes"
    REPORT_READY = "they are said to run and be ready, and nothing runs"
    LEAVE_PENDING = "they are bound and never start"


class Pod:
    """Lives in a thread of its own; tells the API server what changes."""

    def __init__(
        self,
        pod: Mapping[str, Any],
        *,
        treatment: Treatment,
        address: str,
        api: client.CoreV1Api,
        api_url: str,
        folder: Path,
    ):
        self.name: str = pod["metadata"]["name"]
        self.namespace: str = pod["metadata"]["namespace"]
        self.uid: str = pod["metadata"]["uid"]
        self.address = address
        self.treatment = treatment
        self._pod = {**pod, "status": {**pod.get("status", {}), "podIP": address}}
        self._spec = pod["spec"]
        self._api = api
        self._api_url = api_url
        self._folder = folder / self.namespace / self.name
        self._folder.mkdir(parents=True, exist_ok=True)
        self._volumes = Volumes(
            self._pod,
            folder=self._folder / "volumes",
            claims=folder / self.namespace / "claims",
            reader=ObjectReader(api, self.namespace),
        )
        self._started_at = now()
        self._initialised = not self._spec.get("initContainers")
        self._since: dict[str, tuple[str, str]] = {}
        self._reported: dict[str, Any] | None = None
        self._grace_seconds: float | None = None
        self._wake = threading.Event()
        self.containers = [self._container(each) for each in self._spec["containers"]]
        self._thread = threading.Thread(target=self._live, name=f"pod {self.name}")

    def start(self) -> None:
        self._thread.start()

    def stop(self, grace_seconds: float) -> None:
        """Begin, or hasten, the end."""
        if self._grace_seconds is None or grace_seconds < self._grace_seconds:
            self._grace_seconds = grace_seconds
            self._wake.set()

    def join(self, timeout: float | None = None) -> bool:
        """Whether it is over."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def logs(self) -> dict[str, str]:
        """What each container wrote, init containers too."""
        return {
            path.stem: path.read_text(errors="replace")
            for path in sorted(self._folder.glob("*.log"))
        }

    def _live(self) -> None:
        if self.treatment is Treatment.RUN:
            self._run()
        # nothing runs any more, or ever did; the pod stays to be read until it is deleted
        self._report()
        self._wake.wait()
        self._report()
        self._delete()
        shutil.rmtree(self._folder / "volumes", ignore_errors=True)

    def _run(self) -> None:
        for definition in self._spec.get("initContainers", []):
            first = self._container(definition, restart_policy="OnFailure")
            first.start()
            self._stop_when_told([first])
        self._initialised = True
        if self._grace_seconds is None:
            for container in self.containers:
                container.start()
            self._stop_when_told(self.containers)

    def _stop_when_told(self, containers: list[Container]) -> None:
        told: float | None = None
        while not all(container.ended for container in containers):
            if self._grace_seconds is not None and self._grace_seconds != told:
                told = self._grace_seconds
                for container in containers:
                    container.stop(told)
            self._report()
            time.sleep(_TICK_SECONDS)

    def _container(
        self, definition: Mapping[str, Any], *, restart_policy: str | None = None
    ) -> Container:
        def prepare() -> Run:
            paths = self._volumes.mount(definition)
            reader = ObjectReader(self._api, self.namespace)
            variables = resolve_variables(definition, self._pod, reader)
            return Run(
                command=resolve_command(definition, variables=variables, paths=paths),
                environment=process_environment(
                    variables, pod_folder=self._folder, paths=paths, api_url=self._api_url
                ),
            )

        return Container(
            definition,
            address=self.address,
            restart_policy=restart_policy or self._spec.get("restartPolicy", "Always"),
            grace_seconds=float(self._spec.get("terminationGracePeriodSeconds", 30)),
            log_file=self._folder / f"{definition['name']}.log",
            prepare=prepare,
        )

    def _report(self) -> None:
        status = self._status()
        if status == self._reported:
            return
        try:
            self._api.patch_namespaced_pod_status(
                self.name, self.namespace, {"status": status}, _preload_content=False
            )
        except client.ApiException as error:
            if error.status not in (404, 409):  # deleted meanwhile, or another pod by that name
                raise
        self._reported = json.loads(json.dumps(status))

    def _status(self) -> dict[str, Any]:
        statuses = [self._container_status(container) for container in self.containers]
        ready = all(status["ready"] for status in statuses)
        conditions = {
            "PodScheduled": True,
            "PodReadyToStartContainers": self.treatment is not Treatment.LEAVE_PENDING,
            "Initialized": self._initialised,
            "ContainersReady": ready,
            "Ready": ready,
        }
        return {
            "phase": self._phase(),
            "hostIP": "127.0.0.1",
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": self._started_at,
            "conditions": [self._condition(name, holds) for name, holds in conditions.items()],
            "containerStatuses": statuses,
        }

    def _container_status(self, container: Container) -> dict[str, Any]:
        status = container.status()
        if self.treatment is Treatment.REPORT_READY and self._grace_seconds is None:
            running = {"running": {"startedAt": self._started_at}}
            return {**status, "ready": True, "started": True, "state": running}
        return status

    def _phase(self) -> str:
        if self.treatment is Treatment.LEAVE_PENDING or not self._initialised:
            return "Pending"
        if self.treatment is Treatment.RUN:
            states = [container.status()["state"] for container in self.containers]
            if all(container.finished for container in self.containers):
                failed = any(container.exit_status for container in self.containers)
                return "Failed" if failed else "Succeeded"
            if not any({"running", "terminated"} & state.keys() for state in states) and not any(
                container.status()["restartCount"] for container in self.containers
            ):
                return "Pending"
        return "Running"

    def _condition(self, name: str, holds: bool) -> dict[str, Any]:
        status = str(holds)
        if self._since.get(name, ("", ""))[0] != status:
            self._since[name] = (status, now())
        return {"type": name, "status": status, "lastTransitionTime": self._since[name][1]}

    def _delete(self) -> None:
        """The last word of a kubelet: the object may go."""
        try:
            self._api.delete_namespaced_pod(
                self.name,
                self.namespace,
                body={"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}},
                _preload_content=False,
            )
        except client.ApiException as error:
            if error.status not in (404, 409):
                raise
