"""Functions in Python that administrators have registered."""
