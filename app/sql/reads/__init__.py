"""Pull and push queries, and PRINT."""
