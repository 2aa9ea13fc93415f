"""ksqlDB's REST protocol on a port of its own, so that clients and tools made for ksqlDB work with this service.

This package does not interpret statements: it translates requests into statements of ``app.sql``, and results back.
"""
