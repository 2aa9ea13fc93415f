"""Looking at where a definition delivers its results: before the transaction of a request begins."""

from __future__ import annotations

from app.catalog.deliveries.targets import Target
from app.db.service_context import delivery_context_of
from app.http.parameters import Services, looked_outside


async def look_at_target(services: Services, target: Target | None) -> None:
    """Look at a target, with no turn of anything taken: it may take ten seconds.

    Raises:
        DefinitionInvalid: it cannot be written as it is.
        TargetUnavailable: it gives no answer.
    """
    if target is not None:
        site = delivery_context_of(services.settings)
        await looked_outside(services, lambda: target.check(site))
