"""The test node: scheduler and kubelet for one machine, without a container runtime.

It binds every pod, runs the commands of its containers as local processes, each pod with a
loopback address of its own, and finishes deletions. In namespaces where a test needs no workers it
only says that the pods are ready. It does not know images, limits, security contexts, node
selectors, hooks, or updates of mounted files; a real node is needed to test those.
"""

import contextlib
import json
import random
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kubernetes import client, config, watch
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.pods import Pod, Treatment
from urllib3.exceptions import HTTPError

NODE_NAME = "test-node"
_WATCH_SECONDS = 2
_STOP_SECONDS = 60


class LocalNode:
    """Starts on entering; on leaving every process it started is gone."""

    def __init__(self, control_plane: ControlPlane, folder: Path):
        self.folder = folder
        self._api_url = control_plane.url
        self._client = config.new_client_from_config(str(control_plane.kubeconfig))
        self._api = client.CoreV1Api(self._client)
        self._pods: dict[str, Pod] = {}
        self._treatments: dict[str, Treatment] = {}
        self._addresses = _loopback_addresses()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="test node")
        self.faults: list[str] = []

    def treat(self, namespace: str, treatment: Treatment) -> None:
        """What becomes of new pods of a namespace; they are said to be ready if nobody says."""
        self._treatments[namespace] = treatment

    def pods(self, namespace: str) -> list[Pod]:
        """The pods of a namespace that were seen so far, also those that are gone."""
        return [pod for pod in list(self._pods.values()) if pod.namespace == namespace]

    def logs(self, namespace: str) -> dict[str, str]:
        """What the containers in a namespace wrote, by `pod/container`."""
        return {
            f"{pod.name}/{container}": text
            for pod in self.pods(namespace)
            for container, text in pod.logs().items()
        }

    def clear(self, namespace: str) -> None:
        """Kill what runs in a namespace, and wait until it is gone."""
        found = self.pods(namespace)
        for pod in found:
            pod.stop(0)
        for pod in found:
            if not pod.join(_STOP_SECONDS):
                raise AssertionError(f"pod {pod.name} in {namespace} does not end")

    def __enter__(self) -> Self:
        capacity = {"cpu": "32", "memory": "64Gi", "pods": "500"}
        ready = {"type": "Ready", "status": "True", "reason": "TestNode"}
        self._api.create_node({"metadata": {"name": NODE_NAME}}, _preload_content=False)
        self._api.patch_node_status(
            NODE_NAME,
            {"status": {"conditions": [ready], "capacity": capacity, "allocatable": capacity}},
            _preload_content=False,
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        for namespace in {pod.namespace for pod in self._pods.values()}:
            self.clear(namespace)
        self._client.close()

    def _watch(self) -> None:
        version = ""
        while not self._stopping.is_set():
            try:
                if not version:
                    version = self._take_stock()
                version = self._follow(version)
            except (client.ApiException, HTTPError, OSError) as error:
                self.faults.append(f"watching pods: {error}")
                version = ""
                self._stopping.wait(0.2)

    def _take_stock(self) -> str:
        answer = self._api.list_pod_for_all_namespaces(_preload_content=False)
        found = json.loads(answer.data)
        for pod in found["items"]:
            self._see("ADDED", pod)
        return str(found["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> str:
        watcher = watch.Watch()
        events = watcher.stream(
            self._api.list_pod_for_all_namespaces,
            resource_version=version,
            timeout_seconds=_WATCH_SECONDS,
        )
        for event in events:
            version = event["raw_object"]["metadata"]["resourceVersion"]
            self._see(event["type"], event["raw_object"])
        return version

    def _see(self, kind: str, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        known = self._pods.get(metadata["uid"])
        if kind == "DELETED":
            if known is not None:
                known.stop(0)
        elif metadata.get("deletionTimestamp"):
            known = known or self._adopt(pod)
            known.stop(metadata.get("deletionGracePeriodSeconds", 0))
        elif not pod["spec"].get("nodeName"):
            self._bind(metadata["name"], metadata["namespace"])
        elif known is None:
            self._adopt(pod)

    def _adopt(self, pod: Mapping[str, Any]) -> Pod:
        treatment = self._treatments.get(pod["metadata"]["namespace"], Treatment.REPORT_READY)
        new = Pod(
            pod,
            treatment=treatment,
            address=next(self._addresses),
            api=self._api,
            api_url=self._api_url,
            folder=self.folder,
        )
        self._pods[new.uid] = new
        new.start()
        return new

    def _bind(self, name: str, namespace: str) -> None:
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE_NAME}}
        with contextlib.suppress(client.ApiException):  # gone or bound: the next event tells
            self._api.create_namespaced_pod_binding(
                name, namespace, binding, _preload_content=False
            )


def _loopback_addresses() -> Iterator[str]:
    """All of 127/8 is this machine; a random corner of it, so that two runs do not meet."""
    first, second = random.randint(16, 254), random.randint(0, 254)
    while True:
        for last in range(1, 255):
            yield f"127.{first}.{second}.{last}"
        second = (second + 1) % 255
