"""Results as the lead's scripts and the documentation read them."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from bench import pictures, report
from bench.report import Figure, Report


def test_a_figure_stands_beside_its_limit(tmp_path: Path) -> None:
    results = Report()
    results.add("burst", 150_000, "deliveries/s", limit=200_000, aim="≥ 0.7", met=True)
    results.add("longest", 12.345678, "ms")
    path = tmp_path / "results.json"
    report.save(path, results.figures, scale="full", merge=False)
    written = json.loads(path.read_text())
    assert written.keys() == {"figures", "machine", "versions"}
    assert written["figures"] == [
        {
            "figure": "burst",
            "value": 150_000,
            "unit": "deliveries/s",
            "limit": 200_000,
            "ratio": 0.75,
            "aim": "≥ 0.7",
            "met": True,
        },
        {
            "figure": "longest",
            "value": 12.35,
            "unit": "ms",
            "limit": None,
            "ratio": None,
            "aim": None,
            "met": None,
        },
    ]
    row = report.as_markdown(written).splitlines()[2]
    assert row == "| burst | 150,000 deliveries/s | 200,000 deliveries/s | 0.75 | ≥ 0.7 | yes |"


def test_a_run_of_some_families_leaves_the_other_figures_alone(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    before = [Figure("kept", 1, "s"), Figure("measured again", 2, "s")]
    report.save(path, before, scale="full", merge=False)
    report.save(path, [Figure("measured again", 3, "s")], scale="full", merge=True)
    figures = json.loads(path.read_text())["figures"]
    assert {one["figure"]: one["value"] for one in figures} == {"kept": 1, "measured again": 3}


def test_pictures_are_well_formed_whatever_the_points(tmp_path: Path) -> None:
    points = {"<one> & other": [(0.0, 0.0)], "two": [(0.5, 10.0), (2_000_000.0, 100.0)]}
    curves = {name: points for name in pictures.PICTURES}
    paths = pictures.save(tmp_path, curves)
    assert len(paths) == len(pictures.PICTURES)
    for path in paths:
        lines = [e for e in ElementTree.parse(path).iter() if e.tag.endswith("polyline")]
        assert len(lines) == len(points)
