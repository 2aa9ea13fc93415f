"""Processes of Python that ours start: how they find the code, and users' functions in processes of their own."""
