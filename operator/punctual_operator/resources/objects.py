"""Metadata that every child has: owner, labels, and a digest of what was applied."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from punctual_operator.api.names import (
    API_VERSION,
    APPLIED_HASH,
    KIND,
    Fingerprint,
    PartName,
    child_labels,
)
from punctual_operator.api.types import Scheduler


def fingerprint(content: Any) -> Fingerprint:
    """The same for the same content, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return Fingerprint(hashlib.sha256(text.encode()).hexdigest()[:16])


def build_object(
    scheduler: Scheduler,
    *,
    api_version: str,
    kind: str,
    name: str,
    part: PartName | None = None,
    body: Mapping[str, Any],
) -> dict[str, Any]:
    """A whole child, with all that we want of it and nothing else."""
    labels = child_labels(scheduler.name, part)
    built = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": scheduler.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(scheduler)],
        },
        **body,
    }
    digest = fingerprint(built)
    metadata = {**built["metadata"], "annotations": {APPLIED_HASH: digest}}
    return {**built, "metadata": metadata}


def owner_reference(scheduler: Scheduler) -> dict[str, Any]:
    """Garbage collection removes what has this when its Scheduler is gone."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": scheduler.name,
        "uid": scheduler.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
