"""The managed driver: one process, one Spark session, many queries.

``process`` is the program, ``reconciler`` applies ``app.catalog.drivers.lifecycle`` to the leases it holds, ``host`` owns the handles of
the streaming queries, ``supervisor`` is the other side: it runs inside the service and keeps one driver alive.
"""
