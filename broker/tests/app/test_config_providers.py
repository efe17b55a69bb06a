"""Values of server.properties that come from files and from the environment."""

from pathlib import Path

import pytest

from barnabas_broker.app.main import resolved
from barnabas_core.config.definitions import InvalidConfig, Property

PACKAGE = "org.apache.kafka.common.config.provider."
PROVIDERS = {
    "config.providers": "file, dir,env",
    "config.providers.file.class": f"{PACKAGE}FileConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}DirectoryConfigProvider",
    "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
}


def filled(texts: dict[str, str], environment: dict[str, str]) -> dict[str, str]:
    properties = {name: Property(text, None) for name, text in texts.items()}
    return {name: each.value for name, each in resolved(properties, environment).items()}


def test_placeholders_are_replaced_by_values_from_files_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "secrets.properties").write_text("one=geheim\n")
    (tmp_path / "two").write_text("zwei")
    values = {
        "a": f"${{file:{tmp_path}/secrets.properties:one}}-${{env:THREE}}",
        "b": f"${{dir:{tmp_path}:two}}",
        "c": "${unknown:x} $ {env:THREE}",
    }
    found = filled({**PROVIDERS, **values}, {"THREE": "drei"})
    assert found == {"a": "geheim-drei", "b": "zwei", "c": "${unknown:x} $ {env:THREE}"}


@pytest.mark.parametrize("value", ["${file:/no/such/file:x}", "${env:NOT_SET}", "${dir:/etc:../etc/hostname}"])
def test_an_error_names_the_placeholder_that_cannot_be_looked_up(value: str) -> None:
    with pytest.raises(InvalidConfig, match=r"a: \$\{.*\} cannot be looked up") as refused:
        filled({**PROVIDERS, "a": f"geheim {value}"}, {})
    assert "geheim" not in str(refused.value)


def test_an_unknown_provider_class_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"config\.providers\.x\.class=a\.B: the class must be one of"):
        filled({"config.providers": "x", "config.providers.x.class": "a.B"}, {})


def test_placeholders_stay_as_they_are_without_providers() -> None:
    assert filled({"a": "${env:HOME}"}, {"HOME": "/"}) == {"a": "${env:HOME}"}
