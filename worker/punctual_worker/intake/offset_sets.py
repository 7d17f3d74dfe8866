"""Sets of offsets of one partition, and the question in Spark whether a record is in one. Pure.

A bit per offset, from the first one that matters, is small however many there are, and can be part
of the query itself. Offsets more than `MOST_BITS` after the first are not remembered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

MOST_BITS: Final = 2**25
"""Of one partition: 33 million requests, and 4 MB."""


@dataclass
class Offsets:
    """Offsets of one partition, none before `first`."""

    first: int
    bits: bytearray = field(default_factory=bytearray)
    end: int = 0
    """After the last one."""

    def add(self, offset: int) -> bool:
        """Remember it, unless it is before `first`; false if it is too far on for that."""
        index = offset - self.first
        self.end = max(self.end, offset + 1)
        if index < 0:
            return True
        if index >= MOST_BITS:
            return False
        if index >= 8 * len(self.bits):
            self.bits.extend(bytes(index // 8 + 1 - len(self.bits)))
        self.bits[index // 8] |= 1 << index % 8
        return True


def contains(sets: Mapping[int, Offsets]) -> Column | None:
    """Whether `partition` and `offset` of a record are among these; none if there are none."""
    found: Column | None = None
    for number, offsets in sets.items():
        if not offsets.bits:
            continue
        index = sf.col("offset") - offsets.first
        here = (sf.col("partition") == number) & index.between(0, 8 * len(offsets.bits) - 1)
        place = sf.shiftright(index, 3).cast("int") + 1
        eight = sf.substring(sf.lit(bytes(offsets.bits)), place, sf.lit(1))
        # Hexadecimal is the way from a byte to a number.
        bit = sf.getbit(sf.conv(sf.hex(eight), 16, 10).cast("bigint"), index.bitwiseAND(7)) == 1
        found = sf.when(here, bit) if found is None else found.when(here, bit)
    return None if found is None else sf.coalesce(found.otherwise(sf.lit(False)), sf.lit(False))
