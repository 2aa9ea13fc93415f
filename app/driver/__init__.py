"""The managed driver: one process, one Spark session, many queries.

``process`` is the program, ``reconciler`` applies ``app.catalog.drivers.lifecycle`` to the driver's leases, ``launches.host`` owns the handles
of the streaming queries, and ``supervisor`` runs inside the service and keeps one driver alive.
"""
