"""The bridge that runs plans on Spark: session, source, stateful step, runner. The only package that imports pyspark."""
