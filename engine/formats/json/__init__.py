"""JSON: whole columns of similar records, others one by one."""
