"""What to apply and what to delete so that the cluster has what is wanted, and no more than that.

A child is applied when what we want of it has changed since we applied it last (its digest says
so: fields that we no longer want are seen by this alone), or when somebody has changed a field of
ours. The server adds defaults and writes quantities in its own way, so only the fields that we
want are compared, and a difference that an apply could not remove is not tried again.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NewType

from punctual_operator.api.names import APPLIED_HASH

_UNITS: Final = {
    "": Decimal(1),
    **{unit: Decimal(10) ** (3 * power) for power, unit in enumerate("num", start=-3)},
    **{unit: Decimal(10) ** (3 * power) for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Decimal(2) ** (10 * power) for power, unit in enumerate("KMGTPE", start=1)},
}
_QUANTITY: Final = re.compile(
    rf"(?P<number>[0-9]+(\.[0-9]+)?(e[0-9]+)?)(?P<unit>{'|'.join(sorted(_UNITS, reverse=True))})"
)
ChildId = tuple[str, str]
"""Kind and name."""
Differences = NewType("Differences", tuple[str, ...])
"""Paths of fields that are not as wanted."""


@dataclass(frozen=True)
class ChildPlan:
    """What to do about the children of one Scheduler."""

    apply: tuple[dict[str, Any], ...] = ()
    delete: tuple[dict[str, Any], ...] = ()


def child_id(body: Mapping[str, Any]) -> ChildId:
    """Which child."""
    return body["kind"], body["metadata"]["name"]


def plan_children(
    wanted: Sequence[dict[str, Any]],
    observed: Mapping[ChildId, dict[str, Any]],
    *,
    owner_uid: str,
    accepted: Mapping[ChildId, Differences],
) -> ChildPlan:
    """`accepted` are the differences that were left after the last apply."""
    apply = [
        child
        for child in wanted
        if needs_apply(child, observed.get(child_id(child)), accepted=accepted.get(child_id(child)))
    ]
    names = {child_id(child) for child in wanted}
    delete = [
        child
        for name, child in observed.items()
        if name not in names
        and is_owned(child, owner_uid)
        and "deletionTimestamp" not in child["metadata"]
    ]
    return ChildPlan(tuple(apply), tuple(delete))


def needs_apply(
    wanted: Mapping[str, Any],
    observed: Mapping[str, Any] | None,
    *,
    accepted: Differences | None,
) -> bool:
    """Whether the server has something else than we want."""
    if observed is None:
        return True
    annotations = observed["metadata"].get("annotations", {})
    if annotations.get(APPLIED_HASH) != wanted["metadata"]["annotations"][APPLIED_HASH]:
        return True
    differences = find_differences(wanted, observed)
    return bool(differences) and differences != accepted


def find_differences(wanted: Any, observed: Any) -> Differences:
    """Fields of `wanted` that `observed` has not, or otherwise."""
    return Differences(tuple(_differences(wanted, observed, "")))


def is_owned(child: Mapping[str, Any], owner_uid: str) -> bool:
    """Whether it is a child of this Scheduler, and not one with the same labels."""
    owners = child["metadata"].get("ownerReferences", ())
    return any(owner.get("uid") == owner_uid and owner.get("controller") for owner in owners)


def _differences(wanted: Any, observed: Any, path: str) -> Iterable[str]:
    if isinstance(wanted, Mapping):
        if not isinstance(observed, Mapping):
            # an empty object may be left out
            if wanted:
                yield path
            return
        for name, value in wanted.items():
            yield from _differences(value, observed.get(name), f"{path}.{name}")
    elif isinstance(wanted, Sequence) and not isinstance(wanted, str):
        yield from _list_differences(wanted, observed, path)
    elif wanted != observed and not _same_amount(wanted, observed):
        yield path


def _list_differences(wanted: Sequence[Any], observed: Any, path: str) -> Iterable[str]:
    """Elements with a name are found by it: others may have been added among them."""
    if not isinstance(observed, Sequence) or isinstance(observed, str):
        if wanted:
            yield path
        return
    if all(isinstance(item, Mapping) and "name" in item for item in wanted):
        by_name = {item.get("name"): item for item in observed if isinstance(item, Mapping)}
        for item in wanted:
            yield from _differences(item, by_name.get(item["name"]), f"{path}[{item['name']}]")
        return
    if len(wanted) != len(observed):
        yield path
        return
    for index, (one, other) in enumerate(zip(wanted, observed, strict=True)):
        yield from _differences(one, other, f"{path}[{index}]")


def _same_amount(wanted: Any, observed: Any) -> bool:
    """`1000m` is `1`: the server writes quantities in the shortest way."""
    one, other = _amount(wanted), _amount(observed)
    return one is not None and one == other


def _amount(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    found = _QUANTITY.fullmatch(str(value))
    if found is None:
        return None
    return Decimal(found["number"]) * _UNITS[found["unit"]]
