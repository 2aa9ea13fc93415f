"""SELECTs that read: pull queries, and push queries."""
