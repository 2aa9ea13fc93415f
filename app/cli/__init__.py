"""The command line: ``slackwater serve | test | doctor | keys | config show | migrate``."""

from app.cli.commands import main

__all__ = ["main"]
