"""A pod's volumes as folders, and the pod's paths as those of this machine.

The containers of the test node are plain processes that see this machine's file system, and need
not be root. So a mount at `/etc/punctual` is a folder somewhere else, and wherever that path stands
(in commands, variables and mounted texts) it is replaced by the folder's.
"""

import base64
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kubernetes import client

SERVICE_ACCOUNT_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_SECONDS = 3600


class NotThereYetError(Exception):
    """A ConfigMap, Secret or key that a pod names is not there: a kubelet waits for it."""


class ObjectReader:
    """ConfigMaps, Secrets and tokens of one namespace."""

    def __init__(self, api: client.CoreV1Api, namespace: str):
        self._api = api
        self._namespace = namespace

    def config_map(self, name: str, *, optional: bool = False) -> dict[str, bytes]:
        read = self._api.read_namespaced_config_map
        found = self._read("ConfigMap", name, read, optional=optional)
        texts = {key: value.encode() for key, value in found.get("data", {}).items()}
        return {**texts, **_decoded(found.get("binaryData", {}))}

    def secret(self, name: str, *, optional: bool = False) -> dict[str, bytes]:
        read = self._api.read_namespaced_secret
        return _decoded(self._read("Secret", name, read, optional=optional).get("data", {}))

    def token(self, pod: Mapping[str, Any], source: Mapping[str, Any]) -> str:
        spec: dict[str, Any] = {
            "expirationSeconds": source.get("expirationSeconds", _TOKEN_SECONDS),
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod["metadata"]["name"],
                "uid": pod["metadata"]["uid"],
            },
        }
        if audience := source.get("audience"):
            spec["audiences"] = [audience]
        answer = self._api.create_namespaced_service_account_token(
            pod["spec"].get("serviceAccountName", "default"),
            self._namespace,
            {"spec": spec},
            _preload_content=False,
        )
        return str(json.loads(answer.data)["status"]["token"])

    def _read(
        self, kind: str, name: str, read: Callable[..., Any], *, optional: bool
    ) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(
                read(name, self._namespace, _preload_content=False).data
            )
            return found
        except client.ApiException as error:
            if error.status != 404:
                raise
            if optional:
                return {}
            raise NotThereYetError(f'{kind} "{name}" not found') from None


class Paths:
    """Replaces a container's mount paths by where the mounts really are."""

    def __init__(self, places: Mapping[str, Path]):
        self.places = dict(places)
        longest_first = sorted(places, key=len, reverse=True)
        alternatives = "|".join(re.escape(path.rstrip("/")) for path in longest_first)
        # only whole path names: `/tmp` is neither in `/tmpfs` nor in `/var/tmp`
        self._pattern = re.compile(rf"(?<![\w./-])({alternatives})(?![\w.-])") if places else None

    def rewrite(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: str(self.places[match[1]]), text)


class Volumes:
    """The volumes of one pod, made when it starts and removed with it."""

    def __init__(self, pod: Mapping[str, Any], *, folder: Path, claims: Path, reader: ObjectReader):
        self._pod = pod
        self._folder = folder
        self._claims = claims
        self._reader = reader

    def mount(self, container: Mapping[str, Any]) -> Paths:
        """This container's mounts: contents first, then their own texts with the new paths."""
        sources = {volume["name"]: volume for volume in self._pod["spec"].get("volumes", [])}
        places: dict[str, Path] = {}
        written: list[Path] = []
        for mount in container.get("volumeMounts", []):
            volume = sources[mount["name"]]
            place = self._place(volume)
            contents = self._contents(volume)
            if contents is not None:
                # a copy per container: each may mount it elsewhere, so the texts may differ
                place = place / container["name"]
                shutil.rmtree(place, ignore_errors=True)
                written += _write(place, contents)
            if mount.get("subPath"):
                place = place / mount["subPath"]
                if contents is None:
                    place.mkdir(parents=True, exist_ok=True)
            places[mount["mountPath"].rstrip("/")] = place
        paths = Paths(places)
        for path in written:
            _rewrite_text(path, paths)
        return paths

    def _place(self, volume: Mapping[str, Any]) -> Path:
        if claim := volume.get("persistentVolumeClaim"):
            place = self._claims / claim["claimName"]
        else:
            place = self._folder / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        return place

    def _contents(self, volume: Mapping[str, Any]) -> dict[str, bytes] | None:
        """Files of a volume that has given ones; None for one that a container fills itself."""
        if source := volume.get("configMap"):
            found = self._reader.config_map(source["name"], optional=source.get("optional", False))
            return _selected(found, source)
        if source := volume.get("secret"):
            name, optional = source["secretName"], source.get("optional", False)
            return _selected(self._reader.secret(name, optional=optional), source)
        if source := volume.get("projected"):
            files: dict[str, bytes] = {}
            for part in source["sources"]:
                files |= self._projected(part)
            return files
        if source := volume.get("downwardAPI"):
            return self._downward(source)
        if {"emptyDir", "persistentVolumeClaim", "ephemeral"} & volume.keys():
            return None
        kinds = sorted(volume.keys() - {"name"})
        raise ValueError(f"volume {volume['name']}: the test node cannot make {kinds}")

    def _projected(self, part: Mapping[str, Any]) -> dict[str, bytes]:
        if source := part.get("configMap"):
            found = self._reader.config_map(source["name"], optional=source.get("optional", False))
            return _selected(found, source)
        if source := part.get("secret"):
            found = self._reader.secret(source["name"], optional=source.get("optional", False))
            return _selected(found, source)
        if source := part.get("serviceAccountToken"):
            return {source["path"]: self._reader.token(self._pod, source).encode()}
        if source := part.get("downwardAPI"):
            return self._downward(source)
        raise ValueError(f"the test node cannot project {sorted(part)}")

    def _downward(self, source: Mapping[str, Any]) -> dict[str, bytes]:
        return {
            item["path"]: field_of(self._pod, item["fieldRef"]["fieldPath"]).encode()
            for item in source.get("items", [])
        }


def field_of(pod: Mapping[str, Any], path: str) -> str:
    """A `fieldRef`: `metadata.name`, `status.podIP`, `metadata.labels['app']`, …"""
    keyed = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if keyed:
        return str(pod["metadata"].get(keyed[1], {}).get(keyed[2], ""))
    found: Any = pod
    for step in path.split("."):
        found = found.get(step, {})
    if isinstance(found, dict):
        if path in ("metadata.labels", "metadata.annotations"):
            return "\n".join(f"{key}={json.dumps(value)}" for key, value in sorted(found.items()))
        raise ValueError(f"the test node does not know the field {path}")
    return str(found)


def _selected(found: Mapping[str, bytes], source: Mapping[str, Any]) -> dict[str, bytes]:
    items = source.get("items")
    if not items:
        return dict(found)
    for item in items:
        if item["key"] not in found and not source.get("optional"):
            raise NotThereYetError(f"references non-existent config key: {item['key']}")
    return {item["path"]: found[item["key"]] for item in items if item["key"] in found}


def _write(place: Path, contents: Mapping[str, bytes]) -> list[Path]:
    place.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(content)
    return [place / name for name in contents]


def _rewrite_text(path: Path, paths: Paths) -> None:
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return
    path.write_text(paths.rewrite(text))


def _decoded(encoded: Mapping[str, str]) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in encoded.items()}
