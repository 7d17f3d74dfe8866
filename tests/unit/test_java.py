"""A missing or old Java is told in a sentence."""

from pathlib import Path

import pytest
from punctual_worker.local.java import JavaError, find_java


def fake_java(directory: Path, said: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'openjdk version "21.0.1" 2026-01-01')

    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"}) == java


def test_the_java_on_the_path_is_taken(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'openjdk version "17" 2021-09-14')

    assert find_java({"PATH": f"{java.parent}:/bin"}) == java


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ('java version "1.8.0_392"', "is Java 8, which is too old. Java 17 or newer is needed"),
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11, which is too old"),
        ("no idea", r"does not tell its version \(no idea\)"),
    ],
)
def test_an_unusable_java_is_named(tmp_path: Path, said: str, sentence: str) -> None:
    fake_java(tmp_path, said)

    with pytest.raises(JavaError, match=sentence):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_no_java_at_all_is_told(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match=r"Java was not found\. Java 17 or newer is needed"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaError, match=r"JAVA_HOME is '.*' but there is no program"):
        find_java({"JAVA_HOME": str(tmp_path)})
