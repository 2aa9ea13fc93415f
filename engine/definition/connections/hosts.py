"""Which hosts connections may reach. A definition says where the service connects to, from inside of its network."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Self, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

SETTING: Final = "SLACKWATER_CONNECTION_HOSTS"
_NAME: Final = re.compile(r"[a-z0-9*]([a-z0-9*._-]*[a-z0-9*])?")
_METADATA: Final = frozenset(
    map(ip_address, ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "64:ff9b::a9fe:a9fe"))
)
"""Where clouds (AWS, Google, Alibaba, Azure) tell an instance its credentials, beside the link-local 169.254.169.254; that one behind NAT64."""


class HostRefused(Exception):
    """The host is not one that connections may reach; the text says which setting decides."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where something listens."""

    host: str
    port: int

    def __str__(self) -> str:
        """As users write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class HostBounds:
    """Names, patterns of names and networks; where there are none, everything but link-local addresses.

    Attributes:
        names: such as ``*.example.com``; they are trusted to lead where they should.
        networks: such as ``10.0.0.0/8``; of a name that no pattern has, every address is in one of them.
    """

    names: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, setting: str | None) -> Self:
        """Read the setting.

        Raises:
            ValueError: a part is neither name nor network.
        """
        names: list[str] = []
        networks: list[Network] = []
        for part in (text.strip().lower() for text in (setting or "").split(",")):
            try:
                networks.append(ip_network(part, strict=False))
            except ValueError:
                if part and not _NAME.fullmatch(part):
                    raise ValueError(
                        f"{part[:80]!r} is no name, pattern or network: write db.example.com,*.kafka.example.com,10.0.0.0/8"
                    ) from None
                names += [part] if part else []
        return cls(tuple(names), tuple(networks))

    @property
    def is_bounded(self) -> bool:
        """Whether the setting names hosts."""
        return bool(self.names or self.networks)

    def check(self, host: str) -> None:
        """Check what can be said without asking anybody: addresses, and names where no network could have them.

        Raises:
            HostRefused: it may not be reached.
        """
        address = _address(host)
        if address is not None:
            self._check_address(host, address)
        elif self.is_bounded and not self.networks and not self._has_name(host):
            raise _refused(host)

    def check_addresses(self, host: str, addresses: list[str]) -> None:
        """Check where a name leads now.

        Raises:
            HostRefused: one of the addresses may not be reached.
        """
        if _address(host) is None and self._has_name(host):
            return
        for text in addresses:
            if (address := _address(text)) is not None:
                self._check_address(host, address)

    def check_at_use(self, host: str) -> None:
        """Check a host before a library connects to it. A name that cannot be resolved is left to that library.

        Raises:
            HostRefused: it may not be reached.
        """
        self.check(host)
        if _address(host) is None and not self._has_name(host):
            try:
                found = addresses_of(Endpoint(host, 0))
            except OSError:
                return
            self.check_addresses(host, found)

    def _has_name(self, host: str) -> bool:
        return any(fnmatchcase(host.lower().rstrip("."), pattern) for pattern in self.names)

    def _check_address(self, host: str, address: Address) -> None:
        if self.is_bounded:
            is_allowed = any(address.version == network.version and address in network for network in self.networks)
            if not is_allowed and not self._has_name(host):
                raise _refused(host)
        elif address.is_link_local or address.is_multicast or address.is_unspecified or address in _METADATA:
            raise HostRefused(
                f"{host[:255]} is a link-local, multicast or unspecified address, or one where a cloud keeps credentials; connections reach "
                f"those only where {SETTING} names them"
            )


def addresses_of(endpoint: Endpoint) -> list[str]:
    """Ask the system where a host is.

    Raises:
        OSError: it is not known.
        UnicodeError: it is no name.
    """
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def _refused(host: str) -> HostRefused:
    return HostRefused(f"{host[:255]} is not among the hosts that {SETTING} names; add it there, or name another host")


def _address(text: str) -> Address | None:
    try:
        text = text.rstrip(".")  # some libraries read 127.0.0.1. as an address
        found = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return _odd_address(text)
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return found if mapped is None else mapped


def _odd_address(text: str) -> Address | None:
    """Return what the system reads as an address and nobody writes: 2130706433, 0x7f.1."""
    if not re.fullmatch(r"[0-9a-fx.]+", text.lower()) or not text[:1].isdigit():
        return None
    try:
        return ip_address(socket.inet_aton(text))
    except OSError:
        return None
