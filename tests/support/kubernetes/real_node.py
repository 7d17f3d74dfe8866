"""A real node: containerd, runc, bridged pods, kubelet and scheduler, as root on this machine.

Pods reach this machine under the bridge's address and each other, and nothing else: there is no
route out, no DNS and no kube-proxy. Who needs the API server in a pod is told where it is by
`KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml
from punctual_worker.local import tether
from punctual_worker.local.ports import claim_port
from support.eventually import eventually
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.host import (
    ADDRESS,
    BRIDGE,
    CGROUP_PARENT,
    FIRST_POD,
    LAST_POD,
    RUN,
    SUBNET,
    prepared_host,
)
from support.kubernetes.images import Image

NODE_NAME = "real-node"
_SOCKET = RUN / "containerd.sock"
_CNI_PROGRAMS = "/usr/lib/cni"
_START_SECONDS = 120
_STOP_SECONDS = 30
_NOT_READY_TAINT = "node.kubernetes.io/not-ready"


@dataclass(frozen=True)
class Task:
    """A running container's first process, as this machine sees it."""

    container: str
    pid: int

    def facts(self) -> dict[str, str]:
        """Fields of /proc/<pid>/status."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def started(self) -> float:
        """In seconds since 1970, to a hundredth."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        since_boot = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot

    def writable_mounts(self) -> set[str]:
        """Where the container can write to a file system that is not the kernel's own."""
        found = set()
        for line in Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines():
            place, options = line.split()[4:6]
            if "rw" in options.split(",") and not re.match(r"/(proc|sys|dev)\b", place):
                found.add(place)
        return found


class RealNode:
    """Starts on entering; on leaving there is no process, mount, cgroup or bridge of it left."""

    def __init__(self, program: Path, folder: Path, images: Sequence[Image], *, pause: Image):
        self.folder = folder
        self._program = program
        self._images = [pause, *images]
        self._pause = pause
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._host = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Only what the control plane needs to be there before it: the address, and containerd."""
        self._host.enter_context(prepared_host(self.folder))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._start_containerd()
            for image in self._images:
                self._ctr("images", "import", str(image.archive))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def join(self, control_plane: ControlPlane) -> None:
        """Become a node that pods are given to."""
        kubeconfig = str(control_plane.kubeconfig)
        (self.folder / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet_config()))
        kubelet = {
            "config": str(self.folder / "kubelet.yaml"),
            "kubeconfig": kubeconfig,
            "root-dir": str(self.folder / "kubelet"),
            "cert-dir": str(self.folder / "kubelet" / "certificates"),
            "hostname-override": NODE_NAME,
            "node-ip": ADDRESS,
        }
        self._spawn("kubelet", [str(self._program), "kubelet"], kubelet)
        scheduler = {
            "kubeconfig": kubeconfig,
            "leader-elect": "false",
            "bind-address": "127.0.0.1",
            "secure-port": str(claim_port("127.0.0.1", 0)),
        }
        self._spawn("scheduler", [str(self._program), "kube-scheduler"], scheduler)
        kubectl = control_plane.kubectl

        def ready() -> bool:
            self._check_alive()
            return kubectl.condition("node", NODE_NAME, "Ready").get("status") == "True"

        eventually(ready, _START_SECONDS, lambda: self.log("kubelet")[-3000:], interval=0.2)
        # every new node has it, and the controller that takes it away is not among ours
        kubectl("taint", "node", NODE_NAME, f"{_NOT_READY_TAINT}-")

    def stop(self) -> None:
        """Pods first, while there is somebody to take them down in order."""
        for name in ("scheduler", "kubelet"):
            self._stop(name)
        if "containerd" in self._processes:
            for container in self._ctr("tasks", "list", "--quiet").split():
                self._ctr("tasks", "delete", "--force", container, check=False)
            for container in self._ctr("containers", "list", "--quiet").split():
                self._ctr("containers", "delete", container, check=False)
            self._stop("containerd")
        self._host.close()
        shutil.rmtree(self.folder / "containerd", ignore_errors=True)  # gigabytes

    def task(self, pod_uid: str, container: str) -> Task:
        """The running container of a pod."""
        for name in self._ctr("containers", "list", "--quiet").split():
            labels = json.loads(self._ctr("containers", "info", name))["Labels"]
            if (
                labels.get("io.kubernetes.pod.uid") == pod_uid
                and labels.get("io.kubernetes.container.name") == container
                and (pid := self._pids().get(name))
            ):
                return Task(name, pid)
        raise AssertionError(f"no running container {container} in pod {pod_uid}")

    def log(self, name: str) -> str:
        """What containerd, the kubelet or the scheduler said."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def pod_logs(self, namespace: str) -> dict[str, str]:
        """What the containers in a namespace wrote, by `pod/container/number`."""
        root = self.folder / "pods"
        return {
            "/".join([path.parts[-3].split("_")[1], *path.parts[-2:]]): path.read_text()
            for path in sorted(root.glob(f"{namespace}_*/*/*.log"))
        }

    def _start_containerd(self) -> None:
        (self.folder / "cni").mkdir(exist_ok=True)
        (self.folder / "cni" / "10-bridge.conflist").write_text(json.dumps(self._network()))
        config = self.folder / "containerd.toml"
        config.write_text(
            f"""version = 2
root = "{self.folder}/containerd"
state = "{RUN}/state"
[grpc]
  address = "{_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{self._pause.name}"
  # machines that are themselves confined may not raise a process's priority over others
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{_CNI_PROGRAMS}"
    conf_dir = "{self.folder}/cni"
"""
        )
        self._spawn("containerd", ["containerd"], {"config": str(config)})

        def answers() -> bool:
            self._check_alive()
            done = subprocess.run(
                ["ctr", "--address", str(_SOCKET), "version"], capture_output=True, check=False
            )
            return done.returncode == 0

        eventually(answers, _START_SECONDS, lambda: self.log("containerd")[-3000:], interval=0.1)

    def _network(self) -> dict[str, object]:
        addresses = {"subnet": SUBNET, "rangeStart": FIRST_POD, "rangeEnd": LAST_POD}
        bridge = {
            "type": "bridge",
            "bridge": BRIDGE,
            "isGateway": False,
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "dataDir": str(RUN / "addresses"),
                "ranges": [[addresses]],
            },
        }
        return {"cniVersion": "0.4.0", "name": "punctual", "plugins": [bridge]}

    def _kubelet_config(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": claim_port("127.0.0.1", 0),
            "healthzPort": 0,
            "readOnlyPort": 0,
            # nobody is let in: logs and processes are looked at from outside
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "podLogsDir": str(self.folder / "pods"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": CGROUP_PARENT,
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            "maxPods": 30,
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
        }

    def _pids(self) -> dict[str, int]:
        lines = self._ctr("tasks", "list").splitlines()[1:]
        words = [line.split() for line in lines]
        return {name: int(pid) for name, pid, state in words if state == "RUNNING"}

    def _ctr(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["ctr", "--address", str(_SOCKET), "--namespace", "k8s.io", *words],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"ctr {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def _spawn(self, name: str, program: Sequence[str], flags: dict[str, str]) -> None:
        words = [f"--{flag}={value}" for flag, value in flags.items()]
        with (self.folder / f"{name}.log").open("wb") as output:
            self._processes[name] = tether.spawn([*program, *words], output=output)

    def _stop(self, name: str) -> None:
        if process := self._processes.pop(name, None):
            tether.stop(process, timeout=_STOP_SECONDS)

    def _check_alive(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended: {self.log(name)[-3000:]}")
