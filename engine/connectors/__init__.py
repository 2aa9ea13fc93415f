"""Reading and writing without Spark: the log, files, judging records, admission, views and the sink.

Owns the database schemas ``log`` and ``views``. Must not know of HTTP, of control tables, or of pyspark.
"""
