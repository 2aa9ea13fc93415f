"""The service's commands: ``slackwater serve | test | doctor | keys | config show | migrate | backup | restore``.

The program ``slackwater.cli`` finds them through ``listing``, and imports the code of a command when it is called.
"""
