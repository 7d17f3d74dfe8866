"""Jars are what was pinned, whatever happened to the cache."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from punctual_worker.local import jars
from punctual_worker.local.jars import JarsError, default_cache_dir, jar_paths, pinned_jars


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A copy of what is in the real cache already: only what the test breaks is fetched again."""
    directory = jar_paths("spark")[0].parent
    shutil.copytree(directory, tmp_path / "jars" / directory.name)
    return tmp_path


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"PUNCTUAL_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/punctual")),
        ({}, Path.home() / ".cache" / "punctual"),
    ],
)
def test_where_the_cache_is(environment: dict[str, str], wanted: Path) -> None:
    assert default_cache_dir(environment) == wanted


def test_every_pin_is_complete() -> None:
    assert [len(pinned_jars(name)) for name in ("spark", "broker")] == [5, 46]
    assert all(len(jar.sha256) == 64 for jar in pinned_jars("broker"))


def test_a_filled_cache_is_used_as_it_is(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # fetching would need it

    assert all(path.is_file() for path in jar_paths("spark", cache_dir=cache))


def test_a_corrupted_jar_is_fetched_again_even_by_two_at_once(cache: Path) -> None:
    broken = jar_paths("spark", cache_dir=cache)[0]
    content = broken.read_bytes()
    broken.write_bytes(b"\0" * len(content))

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: jar_paths("spark", cache_dir=cache), range(2)))

    assert both[0] == both[1]
    assert broken.read_bytes() == content
    assert [path.name for path in (cache / "jars").iterdir() if path.is_dir()] == [
        broken.parent.name
    ]


def test_a_jar_that_is_not_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock.toml"
    lock.write_text(f'[spark]\n"org.apache.commons:commons-pool2:2.13.1" = "{"0" * 64}"\n')
    monkeypatch.setattr(jars, "_LOCK_FILE", lock)

    with pytest.raises(JarsError, match=r"commons-pool2-2\.13\.1\.jar is not the jar that was pin"):
        jar_paths("spark", cache_dir=tmp_path)


def test_a_missing_java_is_one_sentence_without_a_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "punctual_worker.local.jars"],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Java 17 or newer is needed" in done.stderr
