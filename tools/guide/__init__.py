"""The guide: gathers the pages of `docs/`, makes the reference from the code, and builds the site that the service shows at `/guide`.

Knows every other package of the service, for it describes them; none of them knows it. ``app.main.guide`` serves what it builds.
"""
