"""The chart's values: closed by a schema, all of them documented, all of them used."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from punctual_operator.settings import OperatorSettings
from support.kubernetes.helm import CHART, Helm, HelmError

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"replicas": 2}, "Additional property replicas is not allowed"),
        ({"image": {"tga": "1"}}, "Additional property tga is not allowed"),
        ({"metrics": {"prometheusRule": {"thresholds": {"late": 1}}}}, "property late"),
        ({"replicaCount": "two"}, "replicaCount: Invalid type"),
        ({"watchNamespaces": ["Not_A_Namespace"]}, "watchNamespaces.0: Does not match pattern"),
        ({"watchNamespaces": "a,b"}, "watchNamespaces: Invalid type"),
        ({"image": {"digest": "sha256:short"}}, "image.digest: Does not match pattern"),
        ({"operator": {"logLevel": "loud"}}, "operator.logLevel must be one of"),
        ({"operator": {"resyncSeconds": 0}}, "Must be greater than or equal to 0.2"),
        ({"worker": {"image": {"pullPolicy": "Sometimes"}}}, "pullPolicy must be one of"),
    ],
)
def test_a_value_that_is_wrong_or_unknown_is_refused(
    helm: Helm, values: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(HelmError) as refusal:
        helm.render(values)
    assert complaint in str(refusal.value)


def test_the_schema_is_closed_and_lists_exactly_the_values_there_are() -> None:
    def compare(schema: dict[str, Any], values: dict[str, Any], path: str) -> None:
        assert schema["additionalProperties"] is False, path
        assert schema["properties"].keys() - {"global"} == values.keys(), path
        for name, value in values.items():
            if isinstance(value, dict) and "properties" in schema["properties"][name]:
                compare(schema["properties"][name], value, f"{path}.{name}")

    compare(SCHEMA, VALUES, "values")


def test_the_schema_has_the_bounds_of_the_operators_settings() -> None:
    settings = OperatorSettings.model_json_schema()["properties"]
    bounds = ("minimum", "maximum", "enum")
    for name, schema in SCHEMA["properties"]["operator"]["properties"].items():
        setting = settings[re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name)]
        assert {bound: sorted_if_list(schema.get(bound)) for bound in bounds} == {
            bound: sorted_if_list(setting.get(bound)) for bound in bounds
        }, name


def sorted_if_list(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


def test_every_value_is_used_by_a_template() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file())

    def leaves(values: dict[str, Any]) -> Iterator[str]:
        for name, value in values.items():
            if isinstance(value, dict) and value and name not in ("resources", "labels"):
                yield from leaves(value)
            else:
                yield name

    free_form = {"runAsNonRoot", "type", "allowPrivilegeEscalation", "drop"}
    free_form |= {"readOnlyRootFilesystem"}
    unused = [name for name in leaves(VALUES) if f".{name}" not in text]
    assert set(unused) <= free_form
