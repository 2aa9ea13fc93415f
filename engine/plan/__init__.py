"""Definition and catalog to plan: stages, exchanges and operators as frozen values. Pure: no Spark, no I/O, no clock."""
