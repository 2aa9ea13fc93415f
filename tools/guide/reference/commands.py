"""Every command of the command line, made of the commands themselves: the client's, and those of the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import typer
from slackwater.cli.options.invocation import PANEL, Command, common_options
from slackwater.cli.program import EPILOG, OF_SERVICE
from slackwater.cli.program import cli as program

from app.cli.commands import cli as service
from tools.guide.markdown import anchor, block, code, page, prose, table

NAME: Final = "slackwater"
_HEAD: Final = """# Command line

`slackwater` works on any host: `pip install 'slackwater-client[cli]'` brings the commands that speak to a service. Where the service is
installed, the same program has its commands too. `slackwater COMMAND --help` says the same as this page."""


def commands() -> str:
    """Return the page."""
    parts = [
        _HEAD,
        EPILOG,
        f"## {PANEL}",
        "Every command that speaks to a service takes these.",
        _options(common_options(), _context()),
    ]
    for panel, listed in panels().items():
        rows = [(f"[{code(path)}](#{anchor(path)})", _first(command)) for path, command in listed]
        parts += [f"## {panel}", table(("Command", "Does"), rows), *(_command(path, command) for path, command in listed)]
    return page(*parts)


def panels() -> Mapping[str, list[tuple[str, Any]]]:
    """Return every command that does something, with all its words, below the title that the program gives it."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for path, command, panel in (
        *_leaves(NAME, typer.main.get_command(program), "Other commands"),
        *_leaves(NAME, typer.main.get_command(service), OF_SERVICE),
    ):
        found.setdefault(panel, []).append((path, command))
    return found


def _leaves(path: str, command: Any, panel: str) -> Iterator[tuple[str, Any, str]]:
    listed = getattr(command, "commands", None)
    if listed is None:
        yield path, command, panel
        return
    for name, each in listed.items():
        if not each.hidden:
            own = getattr(each, "rich_help_panel", None)
            yield from _leaves(f"{path} {name}", each, own if isinstance(own, str) else panel)


def _command(path: str, command: Any) -> str:
    context = command.make_context(path, [], resilient_parsing=True)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    shared = {tuple(option.opts) for option in common_options()} if isinstance(command, Command) else set()
    arguments = [each for each in command.params if each.param_type_name == "argument" and not getattr(each, "hidden", False)]
    options = [
        each for each in command.params if each.param_type_name == "option" and not each.hidden and tuple(each.opts) not in shared
    ]
    return page(
        f"### {path}",
        block("console", f"$ {usage}"),
        _text(command),
        table(("Argument", "Meaning"), ((code(_argument(each)), each.help or "") for each in arguments)),
        _options(options, context),
    )


def _options(options: Sequence[Any], context: Any) -> str:
    return table(("Option", "Default", "Meaning"), (_option(each, context) for each in options))


def _argument(argument: Any) -> str:
    """Return how an argument is called; the parts of typer that say it have other names in other versions."""
    return f"{argument.metavar or argument.name}{'...' if argument.nargs == -1 else ''}"


def _option(option: Any, context: Any) -> tuple[str, str, str]:
    shown = option.get_default(context)
    default = "" if shown is None or shown == () or option.is_flag else code(str(shown))
    names, _ = option.get_help_record(context)  # with what it takes
    return code(names), "required" if option.required else default, option.help or ""


def _context() -> Any:
    return typer.main.get_command(program).make_context(NAME, [], resilient_parsing=True)


def _text(command: Any) -> str:
    return prose(command.help or "")


def _first(command: Any) -> str:
    return " ".join(_text(command).split("\n\n", 1)[0].split())
