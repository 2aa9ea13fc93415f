"""The process that delivers results: beside the driver, which starts it; a thread for each delivery."""
