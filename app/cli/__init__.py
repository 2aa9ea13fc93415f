"""The command line: ``slackwater serve | doctor | config show | migrate``."""

from app.cli.commands import main

__all__ = ["main"]
