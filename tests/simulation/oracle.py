"""What the contract says must happen, worked out without the dispatcher's code.

The oracle sees what users asked for, where intake wrote it, and what each committed transaction
claims: deliveries, rejections, re-armed work, tombstones and the new position. It does not foretell
a decision; it checks that the claimed one is allowed. Where an entry is delivered in the very
transaction that takes another request of the same id in, both orders of the two are allowed: nobody
outside can tell them apart.

One limit is stated in the design, and the oracle forgives repeats, but not losses, of the ids it
touches: what intake sent twice, after an outage longer than the compaction lag.
"""

from simulation.broker import Claim
from simulation.ledger import Fate, Ledger, Request, Status
from simulation.series import Series, ViolationError


class Oracle:
    """Judges every commit, and the end."""

    def __init__(self, partitions: int, *, attempts: int, max_skew_ms: int) -> None:
        self.ledgers = [Ledger() for _ in range(partitions)]
        self._attempts = attempts
        self._max_skew_ms = max_skew_ms
        self.requests: dict[bytes, Request] = {}
        self.delivered = 0
        self.fires = 0
        """How many of the deliveries were of recurring schedules."""
        self.peace_ms = 1 << 62
        """Recurring schedules that are pending at the end must have had a fire since then."""

    def asked(self, request: Request) -> None:
        """A user has produced a request."""
        self.requests[request.key] = request

    def arrived(self, partition: int, offset: int, key: bytes) -> None:
        """Intake has written an action, for the first time or again."""
        ledger = self.ledgers[partition]
        fate = ledger.fates.get(key)
        ledger.repeated[key] = fate is not None
        if fate is None:
            fate = ledger.fates[key] = Fate(self.requests[key])
        ledger.arrivals.append((offset, fate))

    def committed(self, claims: dict[int, Claim], true_ms: int) -> None:
        """A transaction was committed."""
        for partition, claim in claims.items():
            self._judge(self.ledgers[partition], claim, true_ms)

    def outage(self, partition: int) -> None:
        """More time than `min.compaction.lag.ms` went by: what intake has sent again and nobody has
        read yet cannot be told from what compaction took before it was read. It is delivered
        rather than dropped, so it may come twice or although it was cancelled."""
        ledger = self.ledgers[partition]
        for _, fate in ledger.arrivals[ledger.taken :]:
            request = fate.request
            if ledger.repeated[request.key] and (request.has_id or not request.every_ms):
                ledger.forgiven.add(request.schedule_id)
            elif ledger.repeated[request.key] and fate.status is Status.UNSEEN:
                # The one case where dropping is right: it may be running, and a second run beside
                # the first would never end. If it was taken in, it goes on, once.
                ledger.forgiven.add(request.schedule_id)
                fate.accounted = True

    def check_table(self, partition: int, action_keys: set[bytes], where: str) -> None:
        """The table of the one true owner holds what is pending, no more and no less."""
        ledger = self.ledgers[partition]
        expected = {
            fate.action_key
            for fate in ledger.pending.values()
            if fate.request.schedule_id not in ledger.forgiven
        }
        found = {key for key in action_keys if not self._forgiven(ledger, key)}
        if found != expected:
            raise ViolationError(
                f"{where}: missing from the table {sorted(expected - found)},"
                f" too many in it {sorted(found - expected)}"
            )

    def check_end(self) -> None:
        """Everything that was asked for has come to an end."""
        for partition, ledger in enumerate(self.ledgers):
            for fate in ledger.fates.values():
                if not self._over(ledger, fate):
                    raise ViolationError(
                        f"lost: {_name(fate)} of partition {partition} is still"
                        f" {fate.status.value} at the end"
                    )

    @property
    def all_over(self) -> bool:
        return all(
            self._over(ledger, fate) for ledger in self.ledgers for fate in ledger.fates.values()
        )

    def next_due_ms(self) -> int | None:
        """The next time something is due."""
        dues = [
            fate.series.due_ms if fate.series is not None else fate.request.due_ms
            for ledger in self.ledgers
            for fate in ledger.fates.values()
            if not self._over(ledger, fate) and not fate.paused
        ]
        return min(dues, default=None)

    def _over(self, ledger: Ledger, fate: Fate) -> bool:
        if fate.request.schedule_id in ledger.forgiven:
            return fate.accounted
        if fate.status is Status.PENDING and fate.series is not None and not fate.paused:
            return fate.series.last_ms >= self.peace_ms
        return fate.status not in (Status.UNSEEN, Status.PENDING)

    def _forgiven(self, ledger: Ledger, key: bytes) -> bool:
        fate = ledger.fates.get(_base(key))
        return fate is not None and fate.request.schedule_id in ledger.forgiven

    # one commit

    def _judge(self, ledger: Ledger, claim: Claim, true_ms: int) -> None:
        if claim.offset is None:
            raise ViolationError("a turn was committed without its offset")
        position, metadata = claim.offset
        if ledger.taken and ledger.arrivals[ledger.taken - 1][0] >= position:
            raise ViolationError(f"the position went back to {position}, before what was taken in")
        cursor = _cursor(metadata)
        if cursor < ledger.cursor:
            raise ViolationError(f"the cursor went back from {ledger.cursor} to {cursor}")
        rejected = {_base(key): code for key, code, _ in claim.rejections}
        ended = {_base(key) for key, *_ in claim.deliveries} | rejected.keys()
        while ledger.taken < len(ledger.arrivals):
            offset, fate = ledger.arrivals[ledger.taken]
            if offset >= position:
                break
            ledger.taken += 1
            if fate.status is Status.UNSEEN:
                self._take_in(ledger, fate, claim, ended, rejected)
        self._check_deliveries(ledger, claim, true_ms)
        self._check_rejections(ledger, claim)
        self._check_rearmed(ledger, claim)
        for key in claim.tombstones:
            fate = ledger.fates.get(_base(key))
            if fate is not None and fate.request.has_id:
                fate.accounted = True  # without an id nothing can be decided but to deliver
        ledger.cursor = cursor

    def _take_in(
        self,
        ledger: Ledger,
        fate: Fate,
        claim: Claim,
        ended: set[bytes],
        rejected: dict[bytes, str],
    ) -> None:
        request = fate.request
        if request.schedule_id in ledger.forgiven:
            fate.status = Status.PENDING
            fate.action_key = request.key
            return
        standing = ledger.pending.get(request.schedule_id)
        both_orders = (
            standing is not None
            and standing.request.key in ended
            and standing.series is None  # a fire does not free the id
        )
        live = ended | {_base(key) for key, *_ in claim.rearmed}
        if request.verb in ("CANCEL", "PAUSE", "RESUME"):
            fate.status = Status.DONE
            if standing is None or both_orders:
                return
            if request.verb == "CANCEL":
                self._close(ledger, standing, Status.CANCELLED)
            else:
                standing.paused = request.verb == "PAUSE"
        elif standing is None:
            self._open(ledger, fate)
        elif request.same_as(standing.request) and (
            not both_orders or (request.key in claim.tombstones and request.key not in live)
        ):
            fate.status = Status.UNCHANGED
        elif request.verb == "ADD" and (
            not both_orders or rejected.get(request.key) == "request-id-in-use"
        ):
            if rejected.get(request.key) != "request-id-in-use":
                raise ViolationError(
                    f"{_name(fate)} was taken in while {_name(standing)} is pending,"
                    " and not rejected"
                )
            fate.status = Status.REJECTED
        else:
            if not both_orders:
                self._close(ledger, standing, Status.REPLACED)
            self._open(ledger, fate)

    def _check_deliveries(self, ledger: Ledger, claim: Claim, true_ms: int) -> None:
        for key, destination, value, wanted_ms in claim.deliveries:
            fate = ledger.fates[_base(key)]
            request = fate.request
            self.delivered += 1
            due_ms = wanted_ms if request.every_ms else request.due_ms
            if wanted_ms != due_ms:
                raise ViolationError(f"delivered as if for {wanted_ms}: {_name(fate)}")
            if claim.now_ms < due_ms:
                raise ViolationError(f"early by its own clock: {_name(fate)}")
            if true_ms < due_ms - self._max_skew_ms:
                raise ViolationError(f"early: {_name(fate)}")
            if (destination, value) != (request.destination, request.value):
                raise ViolationError(f"delivered with other content: {_name(fate)}")
            if request.every_ms:
                self.fires += 1
                self._handle_fire(ledger, fate, wanted_ms, claim.now_ms)
            else:
                self._end(ledger, fate, Status.DELIVERED, "delivered")
            if request.expires_ms is not None and claim.now_ms > request.expires_ms:
                raise ViolationError(f"delivered after it expired: {_name(fate)}")

    def _check_rejections(self, ledger: Ledger, claim: Claim) -> None:
        for key, code, wanted_ms in claim.rejections:
            fate = ledger.fates[_base(key)]
            if code == "request-id-in-use" and fate.status is Status.REJECTED:
                if fate.accounted and fate.request.schedule_id not in ledger.forgiven:
                    raise ViolationError(f"rejected twice: {_name(fate)}")
                fate.accounted = True
                continue
            if fate.request.every_ms and code != "expired":
                self._handle_fire(ledger, fate, wanted_ms, claim.now_ms)
            else:
                self._end(ledger, fate, Status.REJECTED, f"rejected as {code}")
            expires_ms = fate.request.expires_ms
            if code == "expired":
                if expires_ms is None or claim.now_ms <= expires_ms:
                    raise ViolationError(f"called expired before its time: {_name(fate)}")
            elif fate.request.schedule_id not in ledger.forgiven:
                if code == "request-id-in-use":
                    raise ViolationError(f"rejected though nothing else is pending: {_name(fate)}")
                if fate.tries + 1 < self._attempts:
                    raise ViolationError(f"given up after {fate.tries} tries: {_name(fate)}")

    def _check_rearmed(self, ledger: Ledger, claim: Claim) -> None:
        for key, due_ms, attempt, wanted_ms in claim.rearmed:
            fate = ledger.fates[_base(key)]
            if fate.series is not None:
                fate.series.due_ms = due_ms
            if fate.request.schedule_id in ledger.forgiven or key in claim.tombstones:
                continue  # in the same turn re-armed, then replaced or cancelled
            if fate.status is not Status.PENDING:
                raise ViolationError(f"re-armed though {fate.status.value}: {_name(fate)}")
            fate.action_key = key
            fate.tries = attempt
            if fate.series is not None:
                try:
                    fate.series.armed(wanted_ms, claim.now_ms)
                except ViolationError as violation:
                    raise ViolationError(f"{_name(fate)}: {violation}") from None

    def _handle_fire(self, ledger: Ledger, fate: Fate, fire_ms: int, now_ms: int) -> None:
        """A fire of a recurring schedule was delivered or given up; the schedule goes on."""
        fate.accounted = True
        if fate.request.schedule_id in ledger.forgiven:
            return
        if fate.status is not Status.PENDING or fate.series is None:
            raise ViolationError(f"a fire though {fate.status.value}: {_name(fate)}")
        self._check_going(fate, "a fire")
        try:
            fate.series.fired(fire_ms, now_ms)
        except ViolationError as violation:
            raise ViolationError(f"{_name(fate)}: {violation}") from None

    def _end(self, ledger: Ledger, fate: Fate, status: Status, what: str) -> None:
        """A request comes to its one end."""
        fate.accounted = True
        if fate.request.schedule_id in ledger.forgiven:
            fate.status = status
            return
        if fate.status is not Status.PENDING:
            raise ViolationError(f"{what} though {fate.status.value}: {_name(fate)}")
        self._check_going(fate, what)
        self._close(ledger, fate, status)

    def _check_going(self, fate: Fate, what: str) -> None:
        if fate.paused:
            raise ViolationError(f"{what} though paused: {_name(fate)}")

    def _open(self, ledger: Ledger, fate: Fate) -> None:
        fate.status = Status.PENDING
        request = fate.request
        fate.action_key = request.key
        ledger.pending[request.schedule_id] = fate
        if request.every_ms:
            fate.series = Series(
                request.every_ms, request.misfire, request.later_ms, request.due_ms, request.due_ms
            )

    def _close(self, ledger: Ledger, fate: Fate, status: Status) -> None:
        fate.status = status
        if ledger.pending.get(fate.request.schedule_id) is fate:
            del ledger.pending[fate.request.schedule_id]


def _cursor(metadata: str) -> tuple[int, str]:
    """The cursor inside a checkpoint's text, read without the dispatcher's code."""
    due, _, key = metadata.split(" ", 4)[2].partition(":")
    return (int(due), key) if due else (-1, "")


def _base(key: bytes) -> bytes:
    return key.partition(b"#")[0]


def _name(fate: Fate) -> str:
    request = fate.request
    return f"{request.verb} {request.schedule_id} (request {request.key.decode()})"
