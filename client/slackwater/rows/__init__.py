"""Results of reads, and answers with more than their JSON."""
