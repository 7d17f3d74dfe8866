"""The operator's settings come from variables, and a wrong one is named."""

import pytest
from punctual_operator.settings import SettingsError, load_settings


def test_variables_are_read_and_others_left_alone() -> None:
    settings = load_settings(
        {
            "PUNCTUAL_OPERATOR_WATCH_NAMESPACES": "a, b,",
            "PUNCTUAL_OPERATOR_RESYNC_SECONDS": "5",
            "PUNCTUAL_APP_ID": "not ours",
            "HOME": "/",
        }
    )
    assert settings.watch_namespaces == ("a", "b")
    assert settings.resync_seconds == 5
    assert load_settings({}).watch_namespaces == ()


def test_a_wrong_one_is_named_with_what_was_given() -> None:
    with pytest.raises(SettingsError, match=r"PUNCTUAL_OPERATOR_HTTP_PORT: .*'many'"):
        load_settings({"PUNCTUAL_OPERATOR_HTTP_PORT": "many"})
