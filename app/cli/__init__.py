"""The service's commands: ``slackwater serve | test | doctor | keys | config show | migrate | backup | restore``.

``slackwater.cli`` is the program; it finds them by ``listing``, and imports what does them when one is called.
"""
