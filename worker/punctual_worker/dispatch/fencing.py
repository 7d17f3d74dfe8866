"""Aborting what former owners of partitions left open, so that nobody waits until its time is up.

Nothing depends on it but that wait: what keeps a former owner from committing anything more is the
group's generation. So one that turns out to be alive is none the worse; it begins anew.
"""

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from punctual_worker.dispatch.writing import transactional_ids, until_done
from punctual_worker.logs import kafka_logger

_PATIENCE_SECONDS: Final = 10
_log = logging.getLogger(__name__)


class Fencing:
    """Each transactional id by a thread of its own, because a client takes half a second to find
    its coordinator."""

    def __init__(
        self, config: dict[str, Any], *, group_id: str, own: str, transaction_timeout_ms: int
    ) -> None:
        """`own`: our own name, which is never fenced."""
        self._config = config
        self._group_id = group_id
        self._own = own
        # brokers refuse more than they allow, though nothing is to be written
        self._limit = {"transaction.timeout.ms": transaction_timeout_ms}
        self._lock = threading.Lock()
        self._running: dict[str, Future[None]] = {}

    def fence(self, writers: Iterable[str]) -> None:
        """Abort what they left open, and wait until that is done."""
        ids = [one for writer in self._others(writers) for one in transactional_ids(writer)]
        for future in [self._begin(one) for one in ids]:
            try:
                future.result(2 * _PATIENCE_SECONDS)
            except TimeoutError as error:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error  # noqa: SLF001

    def fence_the_gone(self, writers: Iterable[str]) -> None:
        """Beside, those of them that are no members of the group any more: they may have left a
        transaction open that only destinations know of, whose readers would wait."""
        if former := self._others(writers):
            threading.Thread(
                target=self._fence_the_gone, args=(former,), name="fencing", daemon=True
            ).start()

    def _others(self, writers: Iterable[str]) -> list[str]:
        return sorted(set(writers) - {"", self._own})

    def _fence_the_gone(self, former: list[str]) -> None:
        admin = AdminClient(self._config, logger=kafka_logger())
        try:
            answers = admin.describe_consumer_groups(
                [self._group_id], request_timeout=_PATIENCE_SECONDS
            )
            members = answers[self._group_id].result(2 * _PATIENCE_SECONDS).members
            gone = sorted(set(former) - {member.client_id for member in members})
            if gone:
                _log.info("not in the group any more: %s", ", ".join(gone))
                self.fence(gone)
        except (KafkaException, TimeoutError) as error:
            _log.warning("what former owners left open is left to time out: %s", error)

    def _begin(self, transactional_id: str) -> Future[None]:
        with self._lock:
            running = self._running.get(transactional_id)
            if running is not None and not running.done():
                return running
            future: Future[None] = Future()
            self._running[transactional_id] = future
        _log.info("aborting what %s left open", transactional_id)
        threading.Thread(
            target=self._abort, args=(transactional_id, future), name="fencing", daemon=True
        ).start()
        return future

    def _abort(self, transactional_id: str, future: Future[None]) -> None:
        config = {**self._config, **self._limit, "transactional.id": transactional_id}
        try:
            producer = Producer(config, logger=kafka_logger())
            until_done(producer.init_transactions, _PATIENCE_SECONDS)
            producer.close()
            future.set_result(None)
        except BaseException as error:  # handed to whoever waits, whatever it is
            future.set_exception(error)
