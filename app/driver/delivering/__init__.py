"""The process that delivers results. A driver starts it; it has a thread for each delivery."""
