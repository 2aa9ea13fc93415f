"""Writes README.md, the page of the alerts, from alerts.yml: `make deploy-pages`. Links of the alerts lead to its headings in the guide."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

HEAD = """# Alerts

Rules for Prometheus. `recording.yml` makes one series of what every process of a service tells, `alerts.yml` has the alerts below. Both
are tested with `promtool` (`make deploy-check`). This page is made from `alerts.yml` (`make deploy-pages`).

| severity | meaning |
| --- | --- |
| critical | results stop, or are lost |
| warning | results come late, or some records do not count |
| info | look at it when there is time |

```bash
sed -i 's|http://localhost:8080|https://slackwater.example.com|' alerts.yml    # where people reach the service: links lead to its guide
promtool check rules recording.yml alerts.yml
```

`prometheus.yml` shows the part of the configuration that loads them. The job has to be named `slackwater`. With the Helm chart:
`metrics.rules.enabled=true`.
"""
TITLES = {
    "slackwater-service": "The service",
    "slackwater-queries": "Queries",
    "slackwater-records": "Records",
    "slackwater-deliveries": "Deliveries",
}
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
_VALUE = re.compile(r"\{\{ \$value [^}]*\}\}")


def readable(text: str) -> str:
    """Return a text with what an alert puts in in brackets."""
    return _VALUE.sub("‹value›", _LABEL.sub(r"‹\1›", text)).strip()


def section(rule: dict[str, Any]) -> str:
    """Return what there is to know of one alert."""
    said = rule["annotations"]
    after = f"after {rule['for']}" if "for" in rule else "at once"
    return (
        f"### {rule['alert']}\n\n"
        f"{readable(said['summary'])} ({rule['labels']['severity']}, {after})\n\n"
        f"- **Why:** {readable(said['cause'])}\n"
        f"- **What to do:** {readable(said['cure'])}\n\n"
        f"```promql\n{rule['expr'].strip()}\n```\n"
    )


def page(text: str) -> str:
    """Return the page of the alerts of a file of rules."""
    groups = yaml.safe_load(text)["groups"]
    parts = [HEAD]
    for group in groups:
        parts += [f"## {TITLES[group['name']]}\n", *map(section, group["rules"])]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page((Path(__file__).parent / "alerts.yml").read_text()))
