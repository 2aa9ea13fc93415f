"""Protocol Buffers: ``.proto`` files to shapes, payloads to columns and back."""
