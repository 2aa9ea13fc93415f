"""What the demo prints. Knows rich and the shape of answers, nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from slackwater import Json

from examples.flights.compare import Agreement


def windows_table(rows: list[Json]) -> Table:
    """Return a picture of the last final windows."""
    table = Table(title="delays_by_airport: the latest final hours", title_justify="left")
    for name in ("origin", "hour (UTC)", "flights", "mean delay", "worst", "destinations"):
        table.add_column(name, justify="left" if name in ("origin", "hour (UTC)") else "right")
    for row in rows:
        mean = "" if row["mean_delay"] is None else f"{row['mean_delay']:.1f}"
        table.add_row(
            row["origin"],
            row["window_start"][:16].replace("T", " "),
            str(row["flights"]),
            mean,
            _text(row["worst_delay"]),
            str(row["destinations"]),
        )
    return table


def joined_table(records: list[Json]) -> Table:
    """Return a picture of joined departures."""
    table = Table(title="departures_with_weather: each flight with the weather at its own departure", title_justify="left")
    for name in ("departed (UTC)", "from", "to", "flight", "delay", "weather of", "temp F", "visibility", "match"):
        table.add_column(name)
    for record in records:
        table.add_row(
            record["departed_at"][:16].replace("T", " "),
            record["origin"],
            record["dest"],
            f"{record['carrier']}{record['flight']}",
            _text(record["dep_delay"]),
            _text(record["observed_at"])[11:16],
            _text(record["temp"]),
            _text(record["visib"]),
            record["match"],
        )
    return table


def verdict(console: Console, agreements: list[Agreement], others: Mapping[str, int]) -> bool:
    """Print one line per comparison; return whether all agree, as far as they can.

    Args:
        console: where.
        agreements: what was compared.
        others: relation → records in it that the demo did not send, and the batch computation does not know.
    """
    is_mixed = any(others.values())
    for agreement in agreements:
        differs = "[yellow]differ[/]" if is_mixed else "[red]DIFFER[/]"
        console.print(
            f"  {'[green]agree[/]' if agreement.is_complete else differs}  {agreement.subject}: {agreement.equal:,} of {agreement.rows:,} "
            f"rows equal the batch computation, {agreement.absent:,} absent"
        )
    if is_mixed:
        listed = ", ".join(f"{count:,} in {name}" for name, count in others.items() if count)
        console.print(
            f"  The service has records that the demo did not send ({listed}), such as those of the tutorial. The batch computation does not "
            "know them: rows that come of them, or of the time that they moved on, are not in it."
        )
    return is_mixed or all(agreement.is_complete for agreement in agreements)


def invitations(console: Console, base_url: str) -> None:
    """Print what to try next."""
    console.print("\n[bold]See and ask[/]")
    for what, where in (
        ("In a browser", f"{base_url}/console"),
        ("The tutorial", f"{base_url}/guide/tutorial/"),
        ("In SQL", f"source .venv/bin/activate; slackwater --url {base_url} sql"),
    ):
        console.print(f"  {what:<12}  {where}", soft_wrap=True, highlight=False)
    console.print("\n[bold]The same by curl[/]")
    for path in (
        "/v1/tables/delays_by_airport/rows?key.origin=JFK&window_from=2013-01-10T12:00:00Z&window_to=2013-01-10T15:00:00Z",
        "/v1/streams/departures_with_weather/records?offset=0&limit=2",
        "/v1/queries/delays_by_airport/status",
        "/v1/queries/delays_by_airport/late-records?limit=3",
        "/v1/streams/departures/rejects?limit=3",
    ):
        console.print(f"  curl '{base_url}{path}'", soft_wrap=True, highlight=False)
    console.print(f"\nEvery request, described and ready to try: [bold]{base_url}/docs[/]")


def _text(value: object) -> str:
    return "" if value is None else str(value)
