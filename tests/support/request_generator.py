"""Random and half-valid requests from a seed: mostly near the edge of what the contract allows."""

import random
from collections.abc import Callable

from support.request_rules import KNOWN, PREFIX, STALE, Request

NOW_MS = 1_794_990_000_000
_JUNK = [
    "",
    " ",
    "\n",
    "|",
    "\x00",
    "é",
    "😀",
    "'",
    '"',
    "\\",
    "%s",
    "${x}",
    "\u0663",
    "\u212a",
    "\u017f",
]
_LEGAL = {
    "action": ["ADD", "add", "REPLACE", "Replace", "CANCEL", "PAUSE", "resume"],
    "deliver-to": ["reminders", "orders.eu", "a", "x" * 249, "...", "A_b-9"],
    "deliver-at": [
        *("2026-11-18T20:00:00.000Z", "2026-11-18T20:00", "2026-12-01t09:30:00,1239z"),
        *("2026-12-01T09:30+0530", "1969-12-31T23:59:59.9999999", "2026-12-01T00:00:00-18"),
    ],
    "delay": ["PT15M", "p1dt2h", "PT0.0001S", "90s", "250ms", "0d", "P2W", "P1DT1,5S"],
    "cron": ["0 9 * * MON-FRI", "*/5 * * * * *", "0  0 1,15\t* ?", "0 0 L * 2#1"],
    "timezone": ["UTC", "Europe/Berlin", "America/Argentina/Ushuaia", "Etc/GMT+5"],
    "request-id": ["r1", "r2", "a|b|", "\u00e9" * 127, "\n", "x" * 255, "\x00"],
    "deliver-partition": ["0", "7", "007", "2147483647"],
    "expires-at": ["2026-12-01T09:30:00Z", "9999-12-31T23:59:59.999Z", "0001-01-01T00:00"],
    "spread": ["PT1H", "0s", "P99999999D", "10ms"],
    "misfire": ["once", "ALL", "Skip"],
}


class RequestGenerator:
    """Makes requests; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._tame = False
        self._values: dict[str, Callable[[], str]] = {
            "action": self._action,
            "deliver-to": self._topic,
            "deliver-at": self._instant,
            "delay": self._duration,
            "cron": self._cron,
            "timezone": self._zone,
            "request-id": self._id,
            "deliver-partition": self._number,
            "expires-at": self._instant,
            "spread": self._duration,
            "misfire": self._misfire,
        }

    def request(self, offset: int) -> Request:
        rnd = self._random
        headers: list[tuple[str, bytes | None]] = []
        # Half of the requests have legal values only, or else hardly any would be accepted.
        self._tame = rnd.random() < 0.5
        if rnd.random() < 0.85:
            headers.append(("deliver-to", self._bytes("deliver-to")))
        if rnd.random() < 0.85:
            headers.append((way := rnd.choice(["deliver-at", "delay", "cron"]), self._bytes(way)))
        if rnd.random() < 0.5:
            headers.append(("request-id", self._bytes("request-id")))
        if rnd.random() < 0.5:
            headers.append(("action", self._bytes("action")))
        while rnd.random() < 0.25:
            short = rnd.choice(sorted(KNOWN))
            headers.append((short, self._bytes(short)))
        named = [(PREFIX + short, value) for short, value in headers]
        while not self._tame and rnd.random() < 0.3:
            named.append((self._strange_name(), self._any_bytes()))
        while rnd.random() < 0.3:
            name = rnd.choice(["user", "", "traceparent", PREFIX + "source", PREFIX + "error"])
            named.append((name, rnd.choice([None, self._any_bytes()])))
        rnd.shuffle(named)
        if rnd.random() < 0.002:
            named += [(f"h{i % 7}", bytes([i % 256])) for i in range(3000)]
        return Request(
            partition=rnd.randrange(8),
            offset=offset,
            timestamp_ms=-1 if rnd.random() < 0.02 else NOW_MS + rnd.randrange(10_000),
            key=rnd.choice([None, b"", b"k", self._any_bytes()]),
            value=rnd.choice([None, b"", b"v", self._any_bytes()]),
            headers=tuple(named),
        )

    def _bytes(self, short: str) -> bytes | None:
        rnd = self._random
        if self._tame:
            return rnd.choice(_LEGAL[short]).encode()
        chance = rnd.random()
        if chance < 0.02:
            return None
        if chance < 0.05:
            return self._any_bytes()
        text = self._values[short]()
        if chance < 0.20:
            text = self._mutated(text)
        return text.encode("utf-8", "surrogatepass")

    def _any_bytes(self) -> bytes:
        rnd = self._random
        kind = rnd.randrange(4)
        if kind == 0:
            return b""
        if kind == 1:
            return rnd.choice([b"\xff", b"\xc3", b"\xed\xa0\x80", b"ADD\xff", b"\xc0\x80", b"\x00"])
        if kind == 2:
            return "".join(rnd.choice(_JUNK) for _ in range(rnd.randrange(5))).encode()
        return rnd.randbytes(rnd.randrange(40))

    def _mutated(self, text: str) -> str:
        rnd = self._random
        at = rnd.randrange(len(text) + 1)
        kind = rnd.randrange(6)
        if kind == 0:
            return text[:at] + text[at + 1 :]
        if kind == 1:
            return text[:at] + rnd.choice(_JUNK) + text[at:]
        if kind == 2:
            return text[:at] + rnd.choice("0123456789TtZz+-:.,PDHMSW ") + text[at + 1 :]
        if kind == 3:
            return text.swapcase()
        if kind == 4:
            return text + rnd.choice(["\n", " ", "\r\n", "\x00", text])
        return text[:at] + text[at : at + 1] * rnd.randrange(2, 300) + text[at:]

    def _strange_name(self) -> str:
        rnd = self._random
        shorts = sorted(KNOWN) + sorted(STALE)
        return rnd.choice(
            [
                *("user", "", "traceparent", "X-Scheduler-Action", PREFIX, "my-x-scheduler-x"),
                *(PREFIX + "expire-at", PREFIX + "plan", PREFIX + "user-key", PREFIX + "é"),
                *("a\n" + PREFIX + "b", PREFIX + "action\nuser", "scheduler-epoch"),
                PREFIX + rnd.choice(shorts),
                PREFIX + rnd.choice(sorted(STALE)),
                PREFIX + rnd.choice(sorted(STALE)),
            ]
        )

    def _action(self) -> str:
        return self._random.choice(
            [
                *("ADD", "REPLACE", "CANCEL", "add", "Cancel", "rePlace", "DELETE", " ADD"),
                *("PAUSE", "Resume", "PAUSED", "re\u017fume"),
            ]
        )

    def _topic(self) -> str:
        return self._random.choice(
            [
                *("reminders", "reminders", "orders.eu", "a", "A_b-9", "x" * 249, "x" * 250, "."),
                *("..", "...", "a/b", "__consumer_offsets", "__other", "*"),
                *("test-schedule-requests", "test-schedule-history", "test-schedule-actions2"),
            ]
        )

    def _instant(self) -> str:
        rnd = self._random
        year = rnd.choice(["2026", "2026", "2027", "2024", "1969", "0001", "9999", "0000", "2126"])
        month = rnd.choice(["01", "02", "02", "11", "12", "12", "00", "13"])
        day = rnd.choice(["01", "18", "28", "29", "30", "31", "31", "00", "32"])
        hour = rnd.choice(["00", "09", "10", "23", "24"])
        clock = f"{hour}:{rnd.choice(['00', '59', '60'])}"
        if rnd.random() < 0.7:
            clock += rnd.choice([":00", ":59", ":59", ":60"])
            if rnd.random() < 0.6:
                digits = rnd.choice(["0", "9", "999", "000", "0001", "123456789", "999999999"])
                clock += rnd.choice(".,") + digits + rnd.choice(["", "", "0", "1"])
        zones = ["", "Z", "z", "+00:00", "-00:00", "+05:30", "-0800", "+14", "+18:00", "-18:00"]
        zone = rnd.choice([*zones, "+18:01", "-19:00", "+5:30", "UTC", " Europe/Berlin", "+05:60"])
        if rnd.random() < 0.1:
            return rnd.choice(
                ["1794990000", "1794990000000", "now", "2026-11-18", "20261118T200000Z", "T10:00"]
            )
        return f"{year}-{month}-{day}{rnd.choice('TTTTt ')}{clock}{zone}"

    def _duration(self) -> str:
        rnd = self._random

        def number() -> str:
            return rnd.choice(["0", "1", "15", "007", "9999999999", "12345678901", "9" * 15, ""])

        if rnd.random() < 0.5:
            return number() + rnd.choice(["ms", "s", "m", "h", "d", "w", "M", "", "us"])
        text = rnd.choice("PPPPp")
        for unit in "YWD":
            if rnd.random() < (0.05 if unit == "Y" else 0.3):
                text += number() + unit
        if rnd.random() < 0.7:
            text += "T"
            for unit in "HMS":
                if rnd.random() < 0.4:
                    text += number()
                    if rnd.random() < 0.3:
                        text += rnd.choice(".,") + rnd.choice(["5", "0001", "999999999", ""])
                    text += unit
        return text

    def _cron(self) -> str:
        fields = ["*", "*/5", "0", "9-17", "MON-FRI", "1,15", "L", "?", "2#1", "a|b", "é", "@"]
        count = self._random.choice([5, 5, 5, 6, 6, 4, 7, 0])
        separator = self._random.choice([" ", " ", "  ", "\t", "\n"])
        return separator.join(
            self._random.choice(fields[: 9 + 3 * (count == 7)]) for _ in range(count)
        )

    def _zone(self) -> str:
        return self._random.choice(
            ["UTC", "Europe/Berlin", "America/Argentina/Ushuaia", "Etc/GMT+5", "/x", "a//b", "a|b"]
        )

    def _id(self) -> str:
        rnd = self._random
        return rnd.choice(["r1", "é", "|", "a|b|c", "x" * 255, "x" * 256, "é" * 127, "é" * 128, ""])

    def _number(self) -> str:
        return self._random.choice(
            [
                "0",
                "7",
                "007",
                "2147483647",
                "2147483648",
                "99999999999",
                "-1",
                "+1",
                "1.0",
                "\u0663",
            ]
        )

    def _misfire(self) -> str:
        return self._random.choice(["once", "all", "skip", "ONCE", "Skip", "s\u212aip", "never"])
