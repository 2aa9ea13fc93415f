"""The command line: ``slackwater serve | test | doctor | config show | migrate``."""

from app.cli.commands import main

__all__ = ["main"]
