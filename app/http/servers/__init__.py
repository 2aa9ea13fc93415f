"""How the service listens: the one place that builds a server and its guards, for every port."""
