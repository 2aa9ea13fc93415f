"""Pure rules of the control plane: no SQL, no HTTP, no clock."""
