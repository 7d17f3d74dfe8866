"""A broker that wants TLS and SCRAM, as many real ones do."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.local.ports import claim_port

HOST = "127.0.0.1"


class ScramBroker:
    """One user, and an authority of its own."""

    def __init__(self, folder: Path, *, user: str, password: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._user, self._password = user, password
        plain, controller, self._port = (claim_port(HOST, 0) for _ in range(3))
        _make_certificates(folder)
        pem = {name: (folder / f"{name}.pem").read_text() for name in ("ca", "cert", "key")}
        self.authority = pem["ca"]
        self.bootstrap_servers = f"{HOST}:{self._port}"
        self.open_servers = f"{HOST}:{plain}"
        """The same broker without all that, for the test's own clients."""
        extra = {
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listeners": (
                f"PLAINTEXT://{HOST}:{plain},SECURED://{HOST}:{self._port},"
                f"CONTROLLER://{HOST}:{controller}"
            ),
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL"
            ),
            "listener.name.secured.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.secured.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.secured.ssl.keystore.type": "PEM",
            "listener.name.secured.ssl.keystore.certificate.chain": pem["cert"],
            "listener.name.secured.ssl.keystore.key": pem["key"],
        }
        self._broker = EmbeddedBroker(folder / "broker", plain, extra_config=extra)

    def __enter__(self) -> Self:
        self._broker.__enter__()
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers, "log_level": 2})
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(self._user, how, self._password.encode())
        admin.alter_user_scram_credentials([change])[self._user].result(30)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._broker.__exit__(kind, error, trace)


def _make_certificates(folder: Path) -> None:
    """An authority, and a certificate by it for the broker."""
    (folder / "names").write_text(f"subjectAltName=IP:{HOST}\n")
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca",
        "req -newkey rsa:2048 -nodes -keyout key.pem -out request -subj /CN=broker",
        "x509 -req -in request -CA ca.pem -CAkey ca.key -out cert.pem -days 2 -extfile names",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
