"""Which hosts connections may reach."""

from __future__ import annotations

import pytest

from engine.definition.connections.hosts import HostBounds, HostRefused


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0",  # noqa: S104 - looked at, not bound
     "169.254.169.254", "fe80::1", "[fe80::1]", "::ffff:169.254.169.254", "::", "224.0.0.1", "fd00:ec2::254",
     "2852039166", "0xa9fea9fe", "0251.0376.0251.0376"],
)  # fmt: skip
def test_without_a_setting_addresses_that_are_nobodys_service_are_refused(host: str) -> None:
    with pytest.raises(HostRefused, match="SLACKWATER_CONNECTION_HOSTS"):
        HostBounds().check(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1", "::1", "broker", "db.example.com", "1broker.example.com"])
def test_without_a_setting_everything_else_is_reached(host: str) -> None:
    HostBounds().check(host)


def test_a_name_that_leads_to_a_refused_address_is_refused() -> None:
    with pytest.raises(HostRefused):
        HostBounds().check_addresses("metadata.example.com", ["10.0.0.1", "169.254.169.254"])
    with pytest.raises(HostRefused):
        HostBounds.of("10.0.0.0/8").check_addresses("db.example.com", ["10.0.0.1", "192.168.0.1"])
    HostBounds.of("10.0.0.0/8").check_addresses("db.example.com", ["10.0.0.1", "::ffff:10.0.0.2"])


@pytest.mark.parametrize(
    ("setting", "host", "is_allowed"),
    [
        ("*.example.com", "db.example.com", True),
        ("*.example.com", "DB.Example.COM.", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "db.example.com.evil.org", False),
        ("db", "db", True),
        ("db", "db2", False),
        ("10.0.0.0/8, db", "10.1.2.3", True),
        ("10.0.0.0/8, db", "11.1.2.3", False),
        ("*.example.com", "10.1.2.3", False),
        ("10.0.0.0/8", "127.0.0.1.", False),
        ("169.254.169.254", "169.254.169.254", True),
        ("fd00::/8", "fd00::1", True),
    ],
)
def test_a_setting_names_what_is_reached(setting: str, host: str, *, is_allowed: bool) -> None:
    bounds = HostBounds.of(setting)
    if is_allowed:
        bounds.check(host)
    else:
        with pytest.raises(HostRefused, match="SLACKWATER_CONNECTION_HOSTS"):
            bounds.check(host)


def test_names_are_looked_up_at_use_where_only_networks_could_have_them() -> None:
    HostBounds.of("127.0.0.0/8,::1").check_at_use("localhost")
    with pytest.raises(HostRefused):
        HostBounds.of("10.0.0.0/8").check_at_use("localhost")


@pytest.mark.parametrize("setting", ["http://db", "a b", "db:5432", "10.0.0.0/99"])
def test_a_setting_that_names_nothing_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match="no name, pattern or network"):
        HostBounds.of(setting)
