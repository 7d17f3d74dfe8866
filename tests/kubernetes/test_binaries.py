"""Where the control plane comes from, and what is said when it comes from nowhere."""

from pathlib import Path

import pytest
from support.kubernetes.binaries import ASSETS, MissingBinariesError, find_binaries


def assets_in(folder: Path, *, without: str = "") -> Path:
    folder.mkdir()
    for name in ASSETS:
        if name != without:
            (folder / name).touch(mode=0o755)
    return folder


def nowhere(folder: Path, **more: str) -> dict[str, str]:
    """A machine with an empty cache, no Go, and these variables."""
    return {"PATH": str(folder), "PUNCTUAL_CACHE_DIR": str(folder / "cache"), **more}


def test_the_users_own_programs_are_taken(tmp_path: Path) -> None:
    assets = assets_in(tmp_path / "assets")
    found = find_binaries(nowhere(tmp_path, KUBEBUILDER_ASSETS=str(assets)))
    assert found.etcd == (f"{assets}/etcd",)
    assert found.apiserver == (f"{assets}/kube-apiserver",)
    assert found.controllers[0] == f"{assets}/kube-controller-manager"
    assert found.kubectl == (f"{assets}/kubectl",)


def test_without_go_and_without_programs_it_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(MissingBinariesError, match=r"Go was not found.*KUBEBUILDER_ASSETS"):
        find_binaries(nowhere(tmp_path))


def test_a_folder_that_lacks_a_program_is_named(tmp_path: Path) -> None:
    assets = assets_in(tmp_path / "assets", without="kube-controller-manager")
    with pytest.raises(MissingBinariesError, match="has no kube-controller-manager"):
        find_binaries(nowhere(tmp_path, KUBEBUILDER_ASSETS=str(assets)))


def test_sources_that_cannot_be_fetched_are_told(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'go: dial tcp: no route to host' >&2\nexit 1\n")
    go.chmod(0o755)
    with pytest.raises(MissingBinariesError, match=r"go mod download.*no route to host"):
        find_binaries({**nowhere(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"})
