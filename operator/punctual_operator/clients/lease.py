"""One active replica: who holds the Lease works, who loses it ends."""

import json
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final

import urllib3
from kubernetes.client import ApiException
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

_END_SECONDS: Final = 10.0
_log = logging.getLogger(__name__)


class _PatientLock(LeaseLock):
    """The library's lock gives up on a connection that fails; this one tries again."""

    released = False

    def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        try:
            if self.released:
                raise urllib3.exceptions.HTTPError("released")
            status, found = super().get(name, namespace)  # type: ignore[no-untyped-call]
            return bool(status), found
        except urllib3.exceptions.HTTPError as error:
            failure = ApiException(status=0, reason=str(error))
            failure.body = json.dumps({"code": 0})
            return False, failure

    def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        try:
            return bool(super().create(name, namespace, election_record))  # type: ignore[no-untyped-call]
        except urllib3.exceptions.HTTPError:
            return False

    def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        try:
            return bool(super().update(name, namespace, updated_record))  # type: ignore[no-untyped-call]
        except urllib3.exceptions.HTTPError:
            return False


class Leadership:
    """Wants to lead from `start` on; `acquired` tells when it does, `lost` when no more."""

    def __init__(self, *, name: str, namespace: str, identity: str, lease_seconds: int) -> None:
        self._lock = _PatientLock(name, namespace, identity)  # type: ignore[no-untyped-call]
        self._lease_seconds = lease_seconds
        self.acquired = threading.Event()
        self.lost = threading.Event()

    def start(self, *, on_change: Callable[[], None]) -> None:
        """Compete in a thread; `on_change` is called from there."""

        def lead() -> None:
            _log.info("leading as %s", self._lock.identity)
            self.acquired.set()
            on_change()

        def end() -> None:
            _log.error("the Lease is lost: ending")
            self.lost.set()
            on_change()
            # Two that act at once do no harm for a moment, but one that cannot even stop is ended.
            timer = threading.Timer(_END_SECONDS, os._exit, args=(1,))
            timer.daemon = True
            timer.start()

        config = electionconfig.Config(
            self._lock,
            lease_duration=self._lease_seconds,
            renew_deadline=self._lease_seconds * 2 / 3,
            retry_period=max(self._lease_seconds / 6, 1.0),
            onstarted_leading=lead,
            onstopped_leading=end,
        )
        election = leaderelection.LeaderElection(config)
        threading.Thread(target=election.run, name="lease", daemon=True).start()

    def release(self) -> None:
        """Let the next one begin at once, instead of when the Lease has expired."""
        if not self.acquired.is_set() or self.lost.is_set():
            return
        found, record = self._lock.get(self._lock.name, self._lock.namespace)
        if found and record.holder_identity == self._lock.identity:
            self._lock.released = True  # the thread must not take it again
            record.holder_identity = ""
            self._lock.update(self._lock.name, self._lock.namespace, record)
