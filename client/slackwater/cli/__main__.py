"""``python -m slackwater.cli``: the same as ``slackwater``, for environments without scripts on the path."""

from slackwater.cli import main

main()
