"""The world of one seed: everybody in it, what may go wrong, and what happens next.

`World(seed).run()` raises `ViolationError` when a promise is broken. Which faults there are, and
how often, is drawn from the seed as well, so that seeds differ in kind and not only in order.
"""

from collections.abc import Callable, Mapping
from typing import Final

from punctual_worker.contract import actions
from simulation.protocol import Protocol
from simulation.scene import DAY_MS, MAX_SKEW_MS, RETENTION_MS, WEEK_MS, Scene
from simulation.series import ViolationError
from simulation.users import DESTINATIONS

_DRAIN_ROUNDS: Final = 4_000


class World(Scene):
    """One run."""

    def __init__(
        self,
        seed: int,
        *,
        protocol: Protocol | None = None,
        story: list[str] | None = None,
        check_tables: bool = True,
        emphasis: Mapping[str, float] | None = None,
    ) -> None:
        """`emphasis` makes some happenings more or less likely, by name; «recurring» and
        «pausing» are shares."""
        emphasis = emphasis or {}
        super().__init__(
            seed,
            protocol=protocol,
            story=story,
            check_tables=check_tables,
            recurring=emphasis.get("recurring"),
            pausing=emphasis.get("pausing"),
        )
        self._happenings, self._weights = self._draw_happenings(emphasis)

    # the run

    def run(self) -> None:
        """Faults for a while, then peace, and then everything must have come to its end."""
        for happening in self.rng.choices(
            self._happenings, cum_weights=self._weights, k=self._steps
        ):
            happening()
        self._make_peace()
        self._resume_all()
        self._until(lambda: self.oracle.all_over and self._all_taken_in())
        self.oracle.check_end()
        self._cancel_what_recurs()
        self._nothing_comes_back()

    def _draw_happenings(
        self, emphasis: Mapping[str, float]
    ) -> tuple[list[Callable[[], None]], list[float]]:
        rng = self.rng
        usual: list[tuple[Callable[[], None], float]] = [
            (self._step, 50),
            (self._user, 8),
            (self._intake, 16),
            (self._marker, rng.choice((2, 10, 20))),
            (self._time, 8),
        ]
        faults: list[tuple[Callable[[], None], float]] = [
            (self._compact, 6),
            (self._crash, 1),
            (self._pause, 1),
            (self._expel, 1),
            (self._rebalance, 1),
            (self._intake_crash, 1),
            (self._clock_jump, 0.7),
            (self._destination, 1.5),
            (self._long_time, 1.5),
            (self._stop_one, 0.4),
            (self._old_disk, 1),
            (self._broker_crash, 1),
        ]
        table = [*usual, (self._resume, 2), (self._start, 3)]
        table += [(what, weight * rng.choice((0, 1, 1, 3))) for what, weight in faults]
        if rng.random() < 0.3:
            self.users.days_may_pass = True
            table += [(self._stop_fleet, 0.8), (self._outage, rng.choice((0, 0.4)))]
        total, weights = 0.0, []
        for what, weight in table:
            total += weight * emphasis.get(what.__name__.removeprefix("_"), 1)
            weights.append(total)
        return [what for what, _ in table], weights

    # what may happen

    def _step(self) -> None:
        able = [one for one in self._lives if one not in self._paused]
        if able:
            dispatcher = self.rng.choice(able)
            for _ in range(self.rng.choice((1, 1, 2, 4, 12))):
                if dispatcher in self._lives:
                    self._advance(dispatcher)
        self.now_ms += int(self.rng.choice((0, 1, 50, 400)) * self._tempo)

    def _user(self) -> None:
        if self._requests:
            self._requests -= 1
            request = self.users.send()
            self.say("user", f"asks in {request.key.decode()}: {self._words(request.key)}")

    def _intake(self) -> None:
        intake = self.rng.choice(self._intakes)
        if self.rng.random() < 0.5:
            intake.read(self.rng)
            return
        written = intake.write(self.rng)
        if written is not None:
            partition, request = written
            self._write_action(partition, request.key)
        elif intake is self._intakes[-1]:
            self._intake_kept = list(intake.at)

    def _intake_crash(self) -> None:
        start = [self.rng.randint(max(0, at - 6), at) for at in self._intake_kept]
        newer = self._new_intake(start)
        survives = self.rng.random() < 0.3
        self._intakes = [self._intakes[-1], newer] if survives else [newer]
        self.say("intake", f"starts again from {start}" + (" beside the old one" * survives))

    def _marker(self) -> None:
        self.broker.write_some_marker()

    def _time(self) -> None:
        self._pass_time(int(self.rng.choice((100, 1_000, 5_000, 15_000)) * self._tempo))

    def _long_time(self) -> None:
        """Longer than any take-over lasts: who was in the middle of one had stopped altogether."""
        for dispatcher in self._lives:
            if dispatcher.taking_over and dispatcher.name in self.broker.group.members:
                self.broker.group.leave(dispatcher.name)
        self._pass_time(self.rng.choice((30_000, 60_000, 120_000)))

    def _compact(self) -> None:
        """At any moment, but not over what waits to be taken in: that is younger than
        `min.compaction.lag.ms`, unless there was an outage."""
        log = self.rng.choice(self.broker.logs)
        ledger, old_below = self.oracle.ledgers[log.number], self._old_below[log.number]
        waiting = (offset for offset, _ in ledger.arrivals[ledger.taken :] if offset >= old_below)
        end = next(waiting, log.end)
        upto = self.rng.choice((end, end, self.rng.randint(0, end)))
        gone = log.compact(upto, self.now_ms, RETENTION_MS)
        if gone:
            self.say("broker", f"compacts partition {log.number} up to {upto}: {gone} gone")

    def _crash(self) -> None:
        if self._lives:
            self._kill(self.rng.choice(list(self._lives)))

    def _old_disk(self) -> None:
        """A copy of a table is put aside; it may come back after a crash."""
        for partition in range(len(self.broker.logs)):
            self.rng.choice(self._dispatchers).store.back_up(partition)

    def _start(self) -> None:
        if self._fleet_stopping:
            self._forget_when_empty()
            return
        down = [one for one in self._dispatchers if one not in self._lives]
        if down:
            self._revive(self.rng.choice(down))

    def _pause(self) -> None:
        able = [one for one in self._lives if one not in self._paused]
        if able:
            dispatcher = self.rng.choice(able)
            self._paused.add(dispatcher)
            self.say(dispatcher.name, "is paused")

    def _resume(self) -> None:
        if self._paused:
            dispatcher = self.rng.choice(sorted(self._paused, key=lambda one: one.name))
            self._paused.discard(dispatcher)
            self.say(dispatcher.name, "goes on")

    def _expel(self) -> None:
        """The group gives up on a member that is dead or silent, or only slow."""
        if self.broker.group.members:
            member = self.rng.choice(self.broker.group.members)
            self.broker.group.leave(member)
            self.say("broker", f"expels {member}")

    def _rebalance(self) -> None:
        self.broker.group.rebalance()

    def _clock_jump(self) -> None:
        dispatcher = self.rng.choice(self._dispatchers)
        dispatcher.skew_ms = self.rng.randint(-MAX_SKEW_MS, MAX_SKEW_MS)
        self.say(dispatcher.name, f"has its clock off by {dispatcher.skew_ms} ms now")

    def _destination(self) -> None:
        name = self.rng.choice(DESTINATIONS)
        target = self.rng.choice((self.unknown, self.failing))
        target.symmetric_difference_update({name})
        self.say("broker", f"destinations: unknown {self.unknown}, failing {self.failing}")

    def _broker_crash(self) -> None:
        self.broker.confuse()
        self.say("broker", "crashes, and may tell older offsets than were committed")

    def _stop_one(self) -> None:
        if self._lives:
            dispatcher = self.rng.choice(list(self._lives))
            dispatcher.stopping = True
            self.say(dispatcher.name, "is asked to stop")

    def _stop_fleet(self) -> None:
        """All stop, most of them cleanly: what it takes for a broker to forget a group."""
        self._fleet_stopping = True
        for dispatcher in list(self._lives):
            if self.rng.random() < self._unclean:
                self._kill(dispatcher)
            else:
                dispatcher.stopping = True

    def _forget_when_empty(self) -> None:
        group = self.broker.group
        if not self._lives:
            for member in list(group.members):
                group.leave(member)
        if group.members or self._lives or not self.broker.quiet:
            return
        self._fleet_stopping = False
        if self.rng.random() < 0.7:
            self._sleep(WEEK_MS)
            self.broker.committed.clear()
            self.say("broker", "forgets the group")
            for log in self.broker.logs:
                self.oracle.outage(log.number)

    def _outage(self) -> None:
        """Nothing runs for longer than the compaction lag."""
        for dispatcher in list(self._lives):
            self._kill(dispatcher)
        for member in list(self.broker.group.members):
            self.broker.group.leave(member)
        self._sleep(2 * DAY_MS)
        for log in self.broker.logs:
            self.oracle.outage(log.number)

    def _sleep(self, duration_ms: int) -> None:
        """All that is in the log now is older than the compaction lag afterwards."""
        self._pass_time(duration_ms)
        for log in self.broker.logs:
            self._old_below[log.number] = log.end
        self.say("world", f"nothing runs for {duration_ms // DAY_MS} days")

    # the end

    def _make_peace(self) -> None:
        self.say("world", "no more faults from here on")
        self.unknown.clear()
        self.failing.clear()
        self._paused.clear()
        self._fleet_stopping = False
        self._requests = 0
        self.oracle.peace_ms = self.now_ms
        for dispatcher in self._dispatchers:
            dispatcher.stopping = False
            if dispatcher not in self._lives:
                self._revive(dispatcher)
        self._take_all_in()

    def _take_all_in(self) -> None:
        while self._intakes[-1].read(self.rng) or not self._intakes[-1].idle:
            written = self._intakes[-1].write(self.rng)
            if written is not None:
                self._write_action(written[0], written[1].key)

    def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(_DRAIN_ROUNDS):
            if done():
                return
            while self.broker.write_some_marker():
                pass
            for dispatcher in list(self._lives):
                for _ in range(8):
                    if dispatcher in self._lives:
                        self._advance(dispatcher)
            due_ms = self.oracle.next_due_ms()
            # Nobody waits for the end of time: what is to go on then ought to have been resumed.
            away_ms = 0 if due_ms in (None, actions.NEVER_MS) else due_ms - self.now_ms
            if away_ms <= MAX_SKEW_MS:
                self._pass_time(400)
            elif not self.oracle.fires:
                self._pass_time(away_ms)
            else:  # not at once: the backlog of other intervals would make this one late
                self._pass_time(max(away_ms - 20_000, 2_000))
            for dispatcher in self._dispatchers:
                if dispatcher not in self._lives:
                    self._revive(dispatcher)

    def _all_taken_in(self) -> bool:
        return all(ledger.taken == len(ledger.arrivals) for ledger in self.oracle.ledgers)

    def _cancel_what_recurs(self) -> None:
        """All that would go on for ever, and can be told to stop, is told so."""
        ongoing = [
            fate.request.schedule_id
            for ledger in self.oracle.ledgers
            for fate in ledger.pending.values()
            if fate.series is not None and fate.request.has_id
        ]
        for request_id in ongoing:
            request = self.users.steer("CANCEL", request_id)
            self.say("user", f"asks in {request.key.decode()}: {self._words(request.key)}")
        self._take_all_in()
        self._until(self._all_taken_in)

    def _resume_all(self) -> None:
        """Whatever is paused goes on, once nothing can come in that would pause it again."""
        self._until(self._all_taken_in)
        for request in self.users.resume_all():
            self.say("user", f"asks in {request.key.decode()}: {self._words(request.key)}")
        self._take_all_in()

    def _nothing_comes_back(self) -> None:
        """All restart from the log alone, and much time passes: nothing is left to be delivered."""
        for dispatcher in self._dispatchers:
            self._kill(dispatcher)
            dispatcher.store.lose()
        self.say("world", "all start from the log alone")
        self._pass_time(1_000_000)
        rounds = iter(range(12))
        self._until(lambda: next(rounds, None) is None)
        for ledger in self.oracle.ledgers:
            ended = {
                fate.request.schedule_id
                for fate in ledger.pending.values()
                if fate.series is None or fate.request.has_id
            }
            if ended - ledger.forgiven:
                raise ViolationError("something is pending again after the end")
