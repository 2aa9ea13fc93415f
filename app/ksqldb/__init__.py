"""ksqlDB's REST protocol on a port of its own, so that clients and tools made for ksqlDB work with this service.

Nothing here decides what a statement means: requests are translated into statements of ``app.sql``, and results back.
"""
