"""A real Kubernetes control plane on loopback, for one test run: etcd, API server, controllers.

Nothing survives it: data in a folder of the run, certificates made by the API server itself, free
ports. The custom resource definitions are there before the controllers start, because those look
for new kinds only now and then.
"""

import contextlib
import secrets
import ssl
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml
from punctual_worker.local import tether
from punctual_worker.local.ports import claim_port
from support.eventually import eventually
from support.kubernetes.binaries import Binaries
from support.kubernetes.kubectl import Kubectl, KubectlError

HOST = "127.0.0.1"
_START_SECONDS = 120
_STOP_SECONDS = 20


class ControlPlane:
    """Starts on entering, is gone on leaving."""

    def __init__(
        self, binaries: Binaries, folder: Path, *, crds: Sequence[Path] = (), host: str = HOST
    ):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._binaries = binaries
        self._crds = crds
        self._host = host
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._certificates = folder / "certificates"
        self.ca_file = self._certificates / "apiserver.crt"
        self.url = ""

    @property
    def kubectl(self) -> Kubectl:
        """As cluster administrator."""
        return Kubectl(self._binaries.kubectl, self.kubeconfig)

    def __enter__(self) -> Self:
        try:
            etcd = self._start_etcd()
            self._start_apiserver(etcd)
            self._install_crds()
            self._start_controllers()
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

    def stop(self) -> None:
        """The last one first; etcd is not asked to leave in good order, its data is thrown away."""
        for name, process in reversed(list(self._processes.items())):
            if name == "etcd":
                process.kill()
            tether.stop(process, timeout=_STOP_SECONDS)
        self._processes.clear()

    def write_kubeconfig(self, path: Path, *, token: str, namespace: str = "default") -> Path:
        """How somebody with this token reaches the API server."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)},
                }
            ],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [
                {
                    "name": "test",
                    "context": {"cluster": "test", "user": "test", "namespace": namespace},
                }
            ],
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    def service_account_kubeconfig(self, path: Path, *, namespace: str, name: str) -> Path:
        """A kubeconfig with the rights of a service account."""
        token = self.kubectl.inside(namespace)("create", "token", name).strip()
        return self.write_kubeconfig(path, token=token, namespace=namespace)

    def log(self, name: str) -> str:
        """What one of the programs said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start_etcd(self) -> str:
        client, peer = (f"http://{HOST}:{claim_port(HOST, 0)}" for _ in range(2))
        flags = {
            "data-dir": str(self.folder / "etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "log-level": "warn",
        }
        self._spawn("etcd", self._binaries.etcd, {**flags, "unsafe-no-fsync": "true"})
        self._wait("etcd", lambda: _answers(f"{client}/health"))
        return client

    def _start_apiserver(self, etcd: str) -> None:
        token, port = secrets.token_hex(16), claim_port(self._host, 0)
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f"{token},admin,admin,system:masters\n")
        # the server makes itself a certificate and a key; the key signs tokens as well
        key = str(self._certificates / "apiserver.key")
        flags = {
            "etcd-servers": etcd,
            "bind-address": self._host,
            "advertise-address": self._host,
            "secure-port": str(port),
            "cert-dir": str(self._certificates),
            "token-auth-file": str(tokens),
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "service-cluster-ip-range": "10.0.0.0/24",
            "endpoint-reconciler-type": "none",
            "profiling": "false",
        }
        self._spawn("apiserver", self._binaries.apiserver, flags)
        self.url = f"https://{self._host}:{port}"
        self._wait("apiserver", lambda: _answers(f"{self.url}/readyz", ca_file=self.ca_file))
        self.write_kubeconfig(self.kubeconfig, token=token)

    def _install_crds(self) -> None:
        for path in self._crds:
            self.kubectl.apply(path, server_side=True)
        # `kubectl wait` fails on one that is so new that it has no conditions at all
        for crd in self.kubectl("get", "crd", "-o", "name").split() if self._crds else ():
            self.kubectl.wait_condition("crd", crd.partition("/")[2], "Established")

    def _start_controllers(self) -> None:
        flags = {"kubeconfig": str(self.kubeconfig), "root-ca-file": str(self.ca_file)}
        self._spawn("controllers", self._binaries.controllers, flags)

        def makes_service_accounts() -> bool:
            with contextlib.suppress(KubectlError):
                return bool(self.kubectl.find("serviceaccount", "default"))
            return False

        self._wait("controllers", makes_service_accounts)

    def _spawn(self, name: str, program: Sequence[str], flags: dict[str, str]) -> None:
        words = [f"--{flag}={value}" for flag, value in flags.items()]
        with (self.folder / f"{name}.log").open("wb") as output:
            self._processes[name] = tether.spawn([*program, *words], output=output)

    def _wait(self, name: str, condition: object) -> None:
        def ready() -> bool:
            if self._processes[name].poll() is not None:
                raise RuntimeError(f"{name} ended: {self.log(name)[-3000:]}")
            return bool(condition())  # type: ignore[operator]

        eventually(ready, _START_SECONDS, lambda: self.log(name)[-3000:], interval=0.1)


def _answers(url: str, *, ca_file: Path | None = None) -> bool:
    try:
        context = ssl.create_default_context(cafile=str(ca_file)) if ca_file else None
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
