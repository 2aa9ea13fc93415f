"""How much a query takes at once, how long it may take, and what its time goes into."""
