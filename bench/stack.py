"""The broker, and dispatchers and intake as processes of their own, as a user runs them.

One broker for the whole run; each figure family has topics and processes of its own and leaves
nothing behind. The broker has a second listener behind a proxy whose network can be cut.
"""

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import psutil
from punctual_worker.contract.topics import TopicNames, topic_specs
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.local.ports import claim_port
from punctual_worker.topics.admin import TopicAdmin
from support.kafka import create_topic
from support.processes import Part
from support.proxy import CuttableProxy

from bench.observing import EndOffsets
from bench.records import PARTITIONS, ActionWriter, BenchError

_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 180
_TAKE_IN_SECONDS: Final = 1800
_MARGIN_SECONDS: Final = 1.0
"""Between the last action's being taken in and the first one's being due."""
_STRETCHES: Final = (1, 3, 9)
_WARM_UP: Final = 20 * PARTITIONS
_WARM_SECONDS: Final = 4.0
"""By how much these are due before the others."""


class Scheduled(NamedTuple):
    """Messages that wait for their time, numbered from 0."""

    topic: str
    dues_ms: list[int]
    warm_up: int
    """So many of them are due before the others, and not to be measured."""

    @property
    def start_s(self) -> float:
        """When the first is due that is measured."""
        return self.dues_ms[self.warm_up] / 1000

    def wait_until_warm(self) -> None:
        """Until the first ones have been delivered, shortly before the others are due."""
        time.sleep(max(self.start_s - _WARM_SECONDS / 1.6 - time.time(), 0))


class Stack:
    """A broker, while the block lasts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        plain, self._far, controller, self._proxied = (claim_port(_HOST, 0) for _ in range(4))
        listeners = f"PLAINTEXT://{_HOST}:{plain},FAR://{_HOST}:{self._far}"
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,FAR:PLAINTEXT"
        self._broker = EmbeddedBroker(
            folder,
            plain,
            extra_config={
                "controller.quorum.voters": f"1@{_HOST}:{controller}",
                "listeners": f"{listeners},CONTROLLER://{_HOST}:{controller}",
                "advertised.listeners": listeners.replace(f":{self._far}", f":{self._proxied}"),
                "listener.security.protocol.map": protocols,
            },
        )

    def __enter__(self) -> Self:
        self._broker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._broker.stop()

    @property
    def servers(self) -> str:
        """Of clients whose network is never cut."""
        return self._broker.bootstrap_servers

    @property
    def far_servers(self) -> str:
        """The same broker, through `network`."""
        return f"{_HOST}:{self._proxied}"

    def network(self) -> CuttableProxy:
        """To be entered before anything connects to `far_servers`."""
        return CuttableProxy(self._proxied, self._far)

    def app(self, name: str) -> "App":
        """Topics and processes of one figure family."""
        return App(self.servers, f"bench-{name}", self._folder / name)


class App:
    """An app id with its topics, while the block lasts."""

    def __init__(self, servers: str, app_id: str, folder: Path) -> None:
        self.servers = servers
        self.topics = TopicNames(app_id)
        self.folder = folder
        self._made: list[str] = []
        self._parts = contextlib.ExitStack()

    def __enter__(self) -> Self:
        specs = topic_specs(
            self.topics,
            request_partitions=PARTITIONS,
            action_partitions=PARTITIONS,
            replication_factor=1,
        )
        admin = TopicAdmin({"bootstrap.servers": self.servers})
        if wrong := [result for result in admin.ensure(specs) if not result.ok]:
            raise BenchError(f"topics cannot be made: {wrong}")
        self._made += [spec.name for spec in specs]
        self.actions = ActionWriter(self.servers, self.topics)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._parts.close()
        TopicAdmin({"bootstrap.servers": self.servers}).delete(self._made)
        shutil.rmtree(self.folder, ignore_errors=True)

    def topic(self, name: str) -> str:
        """A further topic, in which the broker's time is the record's."""
        full_name = f"{self.topics.app_id}-{name}"
        config = {"message.timestamp.type": "LogAppendTime"}
        self._made.append(create_topic(self.servers, full_name, PARTITIONS, config=config))
        return full_name

    def dispatcher(
        self,
        name: str = "dispatcher",
        *,
        servers: str = "",
        wait: bool = True,
        **settings: str | int,
    ) -> Part:
        """Started; of the same name means on the same local store."""
        return self._start("dispatcher", name, servers or self.servers, wait, settings)

    def intake(self) -> Part:
        """Started, and ready."""
        return self._start("intake", "intake", self.servers, True, {})

    def _start(
        self, command: str, name: str, servers: str, wait: bool, settings: dict[str, str | int]
    ) -> Part:
        part = Part(
            command,
            bootstrap_servers=servers,
            app_id=self.topics.app_id,
            folder=self.folder / name,
            **settings,
        )
        self._parts.callback(part.kill_if_left)
        part.start(wait=False)
        if wait:
            part.wait_ready(_START_SECONDS)
        return part

    def schedule(
        self,
        name: str,
        *dispatchers: Part,
        count: int,
        lead_seconds: float,
        per_second: float = math.inf,
        warm: bool = True,
    ) -> Scheduled:
        """Messages that are due from an instant on, all of them taken in well before it.

        If that takes longer than expected it is tried again with more time. `warm` sends some
        ahead: the first transaction of a producer in a partition takes the broker 35 to 300 ms to
        finish, the second one 30, and that is measured by itself.
        """
        warm_up = _WARM_UP if warm else 0
        for stretch in _STRETCHES:
            topic = self.topic(name if stretch == 1 else f"{name}-after-{stretch}-times-the-lead")
            first_ms = round((time.time() + lead_seconds * stretch) * 1000)
            start_ms = first_ms + round(1000 * _WARM_SECONDS) if warm else first_ms
            dues_ms = [first_ms + 50 * (n // PARTITIONS) for n in range(warm_up)]
            dues_ms += [start_ms + round(1000 * n / per_second) for n in range(count)]
            total = taken_in(*dispatchers) + len(dues_ms)
            self.actions.write(topic, dues_ms)
            if _all_taken_in(total, dispatchers, until_s=first_ms / 1000 - _MARGIN_SECONDS):
                return Scheduled(topic, dues_ms, warm_up)
            print(f"   {name}: not taken in before it was due; once more, with more time")
            wait_taken_in(total, *dispatchers)
            time.sleep(max(dues_ms[-1] / 1000 - time.time(), 0))
            self.wait_until_swept()
        raise BenchError(f"{name}: never taken in before it was due: this machine is too busy")

    def run_beside(self, end: Callable[[], object]) -> None:
        """Something of the family's own that is to be ended with the rest."""
        self._parts.callback(end)

    def wait_until_swept(self) -> None:
        """Until the dispatcher has tidied up after what it has fired."""
        EndOffsets(self.servers, self.topics.actions).wait_until_still()


def taken_in(*dispatchers: Part) -> float:
    """How many actions they have taken in since they were started."""
    return sum(part.metric("punctual_actions_total") for part in dispatchers)


def wait_taken_in(total: float, *dispatchers: Part) -> None:
    """Until they have taken in so many."""
    if not _all_taken_in(total, dispatchers, until_s=time.time() + _TAKE_IN_SECONDS):
        raise BenchError(f"{total:,.0f} actions were not taken in within {_TAKE_IN_SECONDS} s")


def _all_taken_in(total: float, dispatchers: Sequence[Part], *, until_s: float) -> bool:
    while (found := taken_in(*dispatchers)) < total and time.time() < until_s:
        time.sleep(0.2)
    return found >= total


def wait_delivered(total: float, dispatcher: Part, *, patience: float) -> None:
    """Until it has delivered so many; what is missing then is for `account` to tell."""
    deadline = time.time() + patience
    while dispatcher.metric("punctual_delivered_total") < total and time.time() < deadline:
        time.sleep(0.5)


def memory_mb(part: Part) -> float:
    """Resident memory of a part, children included."""
    return sum(process.memory_info().rss for process in _processes(part)) / 1e6


def cpu_seconds(part: Part) -> float:
    """Used so far by a part, children included."""
    times = [process.cpu_times() for process in _processes(part)]
    return sum(used.user + used.system for used in times)


def _processes(part: Part) -> list[psutil.Process]:
    process = psutil.Process(part.pid)
    return [process, *process.children(recursive=True)]
