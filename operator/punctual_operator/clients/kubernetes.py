"""Everything that is asked of, and written to, the API server; but for the watches, kopf's.

Calls are the library's blocking ones in threads of their own, so that a slow answer for one
Scheduler holds up no other.
"""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import urllib3
from kubernetes.client import ApiClient, ApiException

from punctual_operator.api.names import (
    API_VERSION,
    FIELD_MANAGER,
    GROUP,
    KIND,
    PLURAL,
    SCHEDULER_LABEL,
    VERSION,
    SchedulerKey,
    as_selector,
)
from punctual_operator.errors import (
    ChangedError,
    KubernetesError,
    NotFoundError,
    SecretNotFoundError,
)
from punctual_operator.metrics import OperatorMetrics
from punctual_operator.plan.changes import ChildId

_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"
_TIMEOUT_SECONDS: Final = 20
_TEXT_LIMIT: Final = 500


class _Kind(NamedTuple):
    path: str
    plural: str


CHILD_KINDS: Final = {
    "ServiceAccount": _Kind("/api/v1", "serviceaccounts"),
    "ConfigMap": _Kind("/api/v1", "configmaps"),
    "Service": _Kind("/api/v1", "services"),
    "Deployment": _Kind("/apis/apps/v1", "deployments"),
    "PodDisruptionBudget": _Kind("/apis/policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": _Kind("/apis/networking.k8s.io/v1", "networkpolicies"),
}
_SCHEDULER: Final = _Kind(f"/apis/{GROUP}/{VERSION}", PLURAL)
_CORE: Final = "/api/v1"


class Kubernetes:
    """A client for what the operator does, and nothing else."""

    def __init__(self, api: ApiClient, executor: Executor, metrics: OperatorMetrics) -> None:
        self._api = api
        self._executor = executor
        self._metrics = metrics

    async def serves_schedulers(self) -> bool:
        """Whether the API server knows our custom resource definition by now."""
        try:
            answer = await self._call("GET", _SCHEDULER.path)
        except NotFoundError:
            return False
        return any(resource["name"] == PLURAL for resource in answer.get("resources", ()))

    async def read_scheduler(self, key: SchedulerKey) -> dict[str, Any] | None:
        """As it is now; None if it is gone."""
        try:
            return await self._call("GET", _path(_SCHEDULER, key.namespace, key.name))
        except NotFoundError:
            return None

    async def list_children(self, key: SchedulerKey) -> dict[ChildId, dict[str, Any]]:
        """All objects that carry the Scheduler's label, whoever owns them."""
        selector = as_selector({SCHEDULER_LABEL: key.name})
        lists = await asyncio.gather(
            *(
                self._call("GET", _path(kind, key.namespace), query={"labelSelector": selector})
                for kind in CHILD_KINDS.values()
            )
        )
        found: dict[ChildId, dict[str, Any]] = {}
        for kind, answer in zip(CHILD_KINDS, lists, strict=True):
            for item in answer["items"]:
                # items of a list do not say what they are
                what = {"apiVersion": answer["apiVersion"], "kind": kind}
                found[kind, item["metadata"]["name"]] = {**item, **what}
        return found

    async def list_pods(self, key: SchedulerKey) -> list[dict[str, Any]]:
        """The pods of all parts."""
        selector = as_selector({SCHEDULER_LABEL: key.name})
        path = _path(_Kind(_CORE, "pods"), key.namespace)
        answer = await self._call("GET", path, query={"labelSelector": selector})
        return list(answer["items"])

    async def read_secret(self, namespace: str, name: str) -> dict[str, Any]:
        """A Secret, decoded: `uid`, `version` and `data` as text."""
        try:
            body = await self._call("GET", _path(_Kind(_CORE, "secrets"), namespace, name))
        except NotFoundError:
            raise SecretNotFoundError(
                f"There is no Secret {name} in namespace {namespace}: make it, or correct the name "
                "in the spec."
            ) from None
        data = {
            entry: base64.b64decode(value).decode("utf-8", "surrogateescape")
            for entry, value in (body.get("data") or {}).items()
        }
        metadata = body["metadata"]
        return {"uid": metadata["uid"], "version": metadata["resourceVersion"], "data": data}

    async def read_child(self, child: Mapping[str, Any]) -> dict[str, Any] | None:
        """The object by this kind and name, whatever its labels are."""
        kind, metadata = CHILD_KINDS[child["kind"]], child["metadata"]
        try:
            return await self._call("GET", _path(kind, metadata["namespace"], metadata["name"]))
        except NotFoundError:
            return None

    async def apply_child(self, child: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply of a whole object; its fields are ours from now on."""
        kind, metadata = CHILD_KINDS[child["kind"]], child["metadata"]
        path = _path(kind, metadata["namespace"], metadata["name"])
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._write("PATCH", path, child, kind=child["kind"], query=query)

    async def delete_child(self, child: Mapping[str, Any]) -> None:
        """Only this very object: one by the same name that was made since stays."""
        kind, metadata = CHILD_KINDS[child["kind"]], child["metadata"]
        path = _path(kind, metadata["namespace"], metadata["name"])
        options = {
            "propagationPolicy": "Background",
            "preconditions": {"uid": metadata["uid"]},
        }
        try:
            await self._write("DELETE", path, options, kind=child["kind"])
        except NotFoundError:
            return

    async def apply_status(self, key: SchedulerKey, status: Mapping[str, Any]) -> dict[str, Any]:
        """The whole status; fields that are no longer there vanish."""
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": key.name, "namespace": key.namespace},
            "status": status,
        }
        path = _path(_SCHEDULER, key.namespace, key.name) + "/status"
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._write("PATCH", path, body, kind=f"{KIND}/status", query=query)

    async def set_finalizers(
        self, key: SchedulerKey, finalizers: Sequence[str], *, resource_version: str
    ) -> dict[str, Any]:
        """Refused by the server if the Scheduler has changed since: lists are replaced whole."""
        metadata = {"finalizers": list(finalizers), "resourceVersion": resource_version}
        path = _path(_SCHEDULER, key.namespace, key.name)
        query = {"fieldManager": FIELD_MANAGER}
        body = {"metadata": metadata}
        return await self._write("PATCH", path, body, kind=KIND, query=query, content_type=_MERGE)

    async def create_event(self, event: Mapping[str, Any]) -> None:
        """Tell people."""
        path = _path(_Kind(_CORE, "events"), event["metadata"]["namespace"])
        await self._write("POST", path, event, kind="Event", content_type="application/json")

    async def _write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any],
        *,
        kind: str,
        query: Mapping[str, str] | None = None,
        content_type: str = _APPLY,
    ) -> dict[str, Any]:
        self._metrics.api_writes.labels(kind, method.lower()).inc()
        if method == "DELETE":
            content_type = "application/json"
        return await self._call(method, path, body=body, query=query, content_type=content_type)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._executor, self._request, method, path, body, query, content_type
        )

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str] | None,
        content_type: str,
    ) -> dict[str, Any]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        target = f"{path}?{urlencode(query)}" if query else path
        prepared = self._api.param_serialize(
            method, target, header_params=headers, auth_settings=["BearerToken"]
        )
        # the library turns JSON bodies into text itself, and leaves others as they are
        sent = json.dumps(body) if content_type == _APPLY else body
        try:
            response = self._api.call_api(
                method, prepared[1], prepared[2], sent, _request_timeout=_TIMEOUT_SECONDS
            )
            content = response.read()
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise KubernetesError(
                f"The API server cannot be asked: {_brief(str(error))}"
            ) from error
        if response.status >= 300:
            raise _refusal(method, path, response.status, content)
        answer: dict[str, Any] = json.loads(content)
        return answer


def _path(kind: _Kind, namespace: str, name: str | None = None) -> str:
    path = f"{kind.path}/namespaces/{quote(namespace)}/{kind.plural}"
    return path if name is None else f"{path}/{quote(name)}"


def _refusal(method: str, path: str, status: int, content: bytes) -> KubernetesError:
    try:
        message = json.loads(content).get("message", "")
    except ValueError:
        message = content.decode(errors="replace")
    text = f"The API server refused {method} {path} ({status}): {_brief(message)}"
    return {404: NotFoundError, 409: ChangedError}.get(status, KubernetesError)(text)


def _brief(text: str) -> str:
    """Long enough to tell, too short to flood a status."""
    return text[:_TEXT_LIMIT]
