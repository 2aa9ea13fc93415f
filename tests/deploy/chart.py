"""The Helm chart as texts, for those who have no helm."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.conftest import ROOT

CHART = ROOT / "deploy" / "helm" / "slackwater"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = {path.name: path.read_text() for path in sorted((CHART / "templates").rglob("*")) if path.is_file()}
REQUIRED = {"database": {"existingSecret": "slackwater-database"}, "state": {"url": "s3://bucket/slackwater"}}
"""What every installation has to name."""


def settings_of_templates() -> set[str]:
    """Return every variable of ours that a template sets."""
    return {name for text in TEMPLATES.values() for name in re.findall(r"- name: (SLACKWATER_\w+)", text)}


def paths_of(values: dict[str, Any], before: str = "") -> Iterator[str]:
    """Return every value by its path; what users fill with names of their own ends there."""
    for name, value in values.items():
        here = f"{before}{name}"
        yield here
        if isinstance(value, dict):
            yield from paths_of(value, f"{here}.")
