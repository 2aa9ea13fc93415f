"""How long records wait: histograms of what buffers hold."""
