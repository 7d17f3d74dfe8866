"""The conventions of Kubernetes APIs, held over our hand-written schema as a linter would."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from punctual_operator.api.types import SchedulerSpec

CRD = yaml.safe_load((Path(__file__).parents[3] / "crds" / "scheduler.yaml").read_text())
(VERSION,) = CRD["spec"]["versions"]
ROOT = VERSION["schema"]["openAPIV3Schema"]
BOOLEANS = {
    # named and meant as in Kubernetes' own pods
    *("runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation"),
    *("optional", "readOnly"),
}


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below and including this one."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")


NODES = [(path, node) for path, node in nodes(ROOT) if path != ".metadata"]


def faults(check: Any) -> list[str]:
    return [path for path, node in NODES if not check(path, node)]


def test_every_field_is_described_and_typed() -> None:
    assert faults(lambda _, node: node.get("description", "").strip()) == []
    assert faults(lambda _, node: "type" in node or node.get("x-kubernetes-int-or-string")) == []


def test_descriptions_of_fields_are_sentences() -> None:
    assert faults(lambda _, node: node["description"].rstrip().endswith(".")) == []


def test_nothing_is_free_form() -> None:
    assert faults(lambda _, node: "x-kubernetes-preserve-unknown-fields" not in node) == []
    assert (
        faults(
            lambda _, node: (
                node.get("type") != "object"
                or "properties" in node
                or "additionalProperties" in node
            )
        )
        == []
    )


def test_every_string_is_bounded() -> None:
    strings = {path: node for path, node in NODES if node.get("type") == "string"}
    assert [path for path, node in strings.items() if not {"maxLength", "enum"} & node.keys()] == []


def test_every_number_is_a_bounded_integer() -> None:
    assert faults(lambda _, node: node.get("type") != "number") == []
    assert (
        faults(
            lambda _, node: (
                node.get("type") != "integer" or {"minimum", "maximum", "format"} <= node.keys()
            )
        )
        == []
    )


def test_every_list_and_map_is_bounded_and_lists_say_how_they_merge() -> None:
    assert (
        faults(
            lambda _, node: (
                node.get("type") != "array" or {"maxItems", "x-kubernetes-list-type"} <= node.keys()
            )
        )
        == []
    )
    assert (
        faults(lambda _, node: "additionalProperties" not in node or "maxProperties" in node) == []
    )


def test_choices_are_words_not_booleans() -> None:
    assert (
        faults(
            lambda path, node: node.get("type") != "boolean" or path.rpartition(".")[2] in BOOLEANS
        )
        == []
    )


def test_words_of_a_choice_are_camel_case() -> None:
    ours = [(path, node) for path, node in NODES if "enum" in node]
    words = {word for _, node in ours for word in node["enum"] if word}
    assert [word for word in words if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", word)] == []


def test_names_are_camel_case_and_units_are_in_them() -> None:
    names = {path.rpartition(".")[2].rstrip("[]{}") for path, _ in NODES if path}
    assert [name for name in names if not re.fullmatch(r"[a-z][A-Za-z0-9]*", name)] == []
    assert not [name for name in names if name.lower().endswith(("timeout", "interval", "period"))]


def test_defaults_are_on_optional_fields_only() -> None:
    required_with_default = [
        f"{path}.{name}"
        for path, node in NODES
        for name in node.get("required", ())
        if "default" in node.get("properties", {}).get(name, {})
    ]
    assert required_with_default == []


def test_conditions_are_a_list_map_by_type_and_come_first() -> None:
    status = ROOT["properties"]["status"]["properties"]
    assert next(iter(status)) == "conditions"
    conditions = status["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert set(conditions["items"]["required"]) == {
        *("type", "status", "reason", "message", "lastTransitionTime")
    }


def test_there_is_a_status_no_phase_and_a_scale() -> None:
    assert VERSION["subresources"]["status"] == {}
    assert VERSION["subresources"]["scale"]["specReplicasPath"] == ".spec.dispatchers.replicas"
    assert not [path for path, _ in NODES if path.endswith(".phase")]


def test_messages_of_rules_say_what_must_be() -> None:
    rules = [rule for _, node in NODES for rule in node.get("x-kubernetes-validations", ())]
    assert len(rules) >= 10
    assert [
        rule["message"]
        for rule in rules
        if not re.search(r"\b(must|must not|may not)\b", rule["message"])
    ] == []


def test_the_category_is_our_own_and_the_short_name_unlikely_to_collide() -> None:
    names = CRD["spec"]["names"]
    assert names["categories"] == ["punctual"]
    assert names["shortNames"] == ["psched"]


def defaults(schema: dict[str, Any]) -> Any:
    """What the API server would fill in for an empty object."""
    return {
        name: {**child["default"], **defaults(child)}
        if isinstance(child.get("default"), dict)
        else child["default"]
        for name, child in schema.get("properties", {}).items()
        if "default" in child
    }


def test_the_operator_has_the_same_defaults_as_the_schema() -> None:
    kafka = {"bootstrapServers": ["kafka:9092"]}
    bare = SchedulerSpec.model_validate({"kafka": kafka})
    schema = ROOT["properties"]["spec"]
    assert SchedulerSpec.model_validate({**defaults(schema), "kafka": kafka}) == bare


@pytest.mark.parametrize("path", ["kafka", "topics", "intake", "dispatchers", "console"])
def test_the_operator_knows_every_field_of_the_schema(path: str) -> None:
    schema = ROOT["properties"]["spec"]["properties"][path]
    model = SchedulerSpec.model_fields[path].annotation
    assert model is not None
    known = {field.alias for field in model.model_fields.values()}  # type: ignore[attr-defined]
    assert known == set(schema["properties"])
