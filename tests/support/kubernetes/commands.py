"""What a container runs: its command line and variables, as a kubelet would resolve them."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from punctual_worker.local.jars import default_cache_dir
from support.kubernetes.volumes import (
    SERVICE_ACCOUNT_MOUNT,
    NotThereYetError,
    ObjectReader,
    Paths,
    field_of,
)

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)")
# what our images have inside, and this machine has somewhere else
_FROM_THIS_MACHINE = ("LANG", "JAVA_HOME", "PYTHONPATH")


def resolve_command(
    container: Mapping[str, Any], *, variables: Mapping[str, str], paths: Paths
) -> list[str]:
    """Command and arguments; an image's own entry point is not known here."""
    words = [*container.get("command", []), *container.get("args", [])]
    if not container.get("command"):
        raise ValueError(f"container {container['name']} has no command: there are no images here")
    return [paths.rewrite(_expand(word, variables)) for word in words]


def resolve_variables(
    container: Mapping[str, Any], pod: Mapping[str, Any], reader: ObjectReader
) -> dict[str, str]:
    """Only what the pod says."""
    variables: dict[str, str] = {}
    for source in container.get("envFrom", []):
        for kind, read in (("configMapRef", reader.config_map), ("secretRef", reader.secret)):
            if reference := source.get(kind):
                found = read(reference["name"], optional=reference.get("optional", False))
                prefix = source.get("prefix", "")
                variables |= {prefix + key: value.decode() for key, value in found.items()}
    for entry in container.get("env", []):
        value = _value(entry, container=container, pod=pod, reader=reader)
        if value is not None:
            variables[entry["name"]] = _expand(value, variables)
    return variables


def process_environment(
    variables: Mapping[str, str], *, pod_folder: Path, paths: Paths, api_url: str
) -> dict[str, str]:
    """All a container's process gets: nothing of the test's own environment gets in by accident."""
    environment = {name: os.environ[name] for name in _FROM_THIS_MACHINE if name in os.environ}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(pod_folder),
        "USER": "punctual",
        "PUNCTUAL_CACHE_DIR": str(default_cache_dir().absolute()),
    }
    if temporary := paths.places.get("/tmp"):
        environment["TMPDIR"] = str(temporary)
    if credentials := paths.places.get(SERVICE_ACCOUNT_MOUNT):
        # clients look for these at a path that cannot be moved, so they are told in another way
        environment["KUBECONFIG"] = str(_kubeconfig(pod_folder, credentials, api_url))
    return environment | {name: paths.rewrite(value) for name, value in variables.items()}


def _value(
    entry: Mapping[str, Any],
    *,
    container: Mapping[str, Any],
    pod: Mapping[str, Any],
    reader: ObjectReader,
) -> str | None:
    source = entry.get("valueFrom")
    if source is None:
        return str(entry.get("value", ""))
    if field := source.get("fieldRef"):
        return field_of(pod, field["fieldPath"])
    if resource := source.get("resourceFieldRef"):
        kind, name = resource["resource"].split(".", 1)
        return str(container.get("resources", {}).get(kind, {}).get(name, "0"))
    for kind, read in (("configMapKeyRef", reader.config_map), ("secretKeyRef", reader.secret)):
        if reference := source.get(kind):
            optional = reference.get("optional", False)
            found = read(reference["name"], optional=optional)
            if reference["key"] in found:
                return found[reference["key"]].decode()
            if optional:
                return None
            raise NotThereYetError(f"couldn't find key {reference['key']} in {reference['name']}")
    raise ValueError(f"the test node cannot resolve variable {entry['name']}: {sorted(source)}")


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` if NAME is known, `$$` as `$`."""

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(replacement, text)


def _kubeconfig(pod_folder: Path, credentials: Path, api_url: str) -> Path:
    cluster = {"server": api_url, "certificate-authority": str(credentials / "ca.crt")}
    context = {
        "cluster": "pod",
        "user": "pod",
        "namespace": (credentials / "namespace").read_text(),
    }
    path = pod_folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "pod",
                "clusters": [{"name": "pod", "cluster": cluster}],
                "users": [{"name": "pod", "user": {"tokenFile": str(credentials / "token")}}],
                "contexts": [{"name": "pod", "context": context}],
            }
        )
    )
    return path
