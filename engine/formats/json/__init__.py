"""JSON: whole columns of records that look alike, others one by one."""
