"""The real helm, with its files in a folder of the test."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[3] / "helm" / "punctual"


class HelmError(Exception):
    """helm ended with an error; the text is what it said."""


def find_helm() -> str | None:
    """The one in the virtualenv, else the one on PATH."""
    beside = Path(sys.executable).parent / "helm"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("helm")


@dataclass(frozen=True)
class Helm:
    """One kubeconfig (or none, which is enough to render) and one namespace."""

    program: str
    folder: Path
    kubeconfig: Path | None = None
    namespace: str = "default"

    def __call__(self, *words: str, values: Mapping[str, Any] | None = None) -> str:
        """What it printed; what it complained about is raised."""
        flags = ["--namespace", self.namespace]
        # without one it would find the user's own cluster
        flags += ["--kubeconfig", str(self.kubeconfig or self.folder / "no-cluster")]
        if values is not None:
            flags += ["--values", "-"]
        homes = {f"HELM_{name}_HOME": str(self.folder) for name in ("CACHE", "CONFIG", "DATA")}
        done = subprocess.run(
            [self.program, *words, *flags],
            input=yaml.safe_dump(dict(values)) if values is not None else None,
            capture_output=True,
            text=True,
            timeout=180,
            env={**os.environ, **homes},
            check=False,
        )
        if done.returncode != 0:
            raise HelmError(f"{done.stderr.strip()}\n{done.stdout.strip()}".strip())
        return done.stdout

    def render(self, values: Mapping[str, Any] | None = None, *flags: str) -> list[dict[str, Any]]:
        """The chart's objects with these values."""
        text = self("template", "punctual", str(CHART), *flags, values=values or {})
        return [each for each in yaml.safe_load_all(text) if each]
