"""How settings reach the parts that `up` starts."""

from pathlib import Path

from punctual_worker.local import parts
from punctual_worker.settings import Settings, load_settings


def test_a_part_reads_exactly_the_settings_it_was_handed(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {
            "app_id": "a",
            "data_dir": tmp_path,
            "destinations": "x,y*",
            "kafka": {"sasl.password": "p"},
            "spark": {"spark.ui.enabled": "true"},
        }
    )
    file = tmp_path / "config"
    file.write_bytes(parts._as_config(settings))

    assert load_settings(flags={}, environment={}, config_file=file) == settings


def test_variables_that_are_in_the_settings_already_are_not_handed_on() -> None:
    environment = {
        "PUNCTUAL_APP_ID": "a",
        "PUNCTUAL_KAFKA_SASL_PASSWORD": "p",
        "PUNCTUAL_CACHE_DIR": "/c",
        "PATH": "/bin",
    }

    assert parts._without_settings(environment) == {"PUNCTUAL_CACHE_DIR": "/c", "PATH": "/bin"}
