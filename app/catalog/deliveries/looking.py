"""Checks the target of a definition's results before the transaction of a request begins."""

from __future__ import annotations

from app.catalog.deliveries.targets import Target
from app.db.service_context import delivery_context_of
from app.http.parameters import Services, looked_outside


async def look_at_target(services: Services, target: Target | None) -> None:
    """Check a target without holding any permit: this may take ten seconds.

    Raises:
        DefinitionInvalid: the target is not writable as defined.
        TargetUnavailable: the target does not answer.
    """
    if target is not None:
        context = delivery_context_of(services.settings)
        await looked_outside(services, lambda: target.check(context))
