"""``slackwater diff``, ``apply`` and ``export``: definitions kept in git."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.definitions.exporting import defined_in, exported
from slackwater.cli.definitions.files import read_files, read_others
from slackwater.cli.definitions.plan import Plan, carry_out, plan_of
from slackwater.cli.definitions.showing import LOOK, show
from slackwater.cli.options.failing import DIFFERENT, FAILED, UsageError
from slackwater.cli.options.invocation import Command, Invocation, invocation_of
from slackwater.cli.options.pairs import confirmed, need

_PANEL = "Definitions in git"
Root = Annotated[Path, typer.Argument(help="A directory of .sql, .yaml and .json files, or one such file.", show_default=False)]
Prune = Annotated[bool, typer.Option("--prune", help="Delete what the service has and the files have not.")]
Match = Annotated[
    list[str] | None,
    typer.Option("--match", help="With --prune: only names of this pattern, such as 'orders*'; can be repeated."),
]
ShowAll = Annotated[bool, typer.Option("--all", help="Show what does not change, too.")]


def add_to(cli: typer.Typer) -> None:
    """Add the commands of this module."""
    for function in (apply, diff, export):
        cli.command(cls=Command, rich_help_panel=_PANEL)(function)


def diff(context: typer.Context, root: Root, prune: Prune = False, match: Match = None, every: ShowAll = False) -> None:
    """Show what apply would do. Exits with 0 where nothing changes, 3 where something does, 1 where something is refused."""
    here = invocation_of(context)
    _refuse_match_alone(match, prune=prune)
    plan = plan_of(here.client, read_files(root), prune=prune, patterns=match or ())
    _show(here, plan, every=every)
    if plan.is_refused:
        raise typer.Exit(FAILED)
    if plan.changes:
        raise typer.Exit(DIFFERENT)


def apply(
    context: typer.Context,
    root: Root,
    prune: Prune = False,
    match: Match = None,
    discard_state: Annotated[
        bool,
        typer.Option(
            "--discard-state", help="Let queries start from scratch whose kept state does not fit their new definition."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    every: ShowAll = False,
) -> None:
    """Make the service have what the files say: shows the plan, asks, and carries it out in an order of dependence.

    Nothing is done where something of the plan is refused, or needs new state and --discard-state is not given (exit code 3). Applied again,
    it changes nothing.
    """
    here = invocation_of(context)
    _refuse_match_alone(match, prune=prune)
    wanted = read_files(root)
    plan = plan_of(here.client, wanted, prune=prune, patterns=match or ())
    if not here.output.as_json:
        _show(here, plan, every=every)
    if plan.is_refused:
        _report(here, plan, [])
        here.output.note("nothing was done", "red")
        raise typer.Exit(FAILED)
    if plan.of("needs_new_state") and not discard_state:
        _report(here, plan, [])
        names = ", ".join(step.name for step in plan.of("needs_new_state"))
        here.output.note(
            f"nothing was done: {names} would start from scratch; --discard-state permits that, slackwater fork keeps both", "red"
        )
        raise typer.Exit(DIFFERENT)
    if not plan.changes:
        _report(here, plan, [])
        return
    if not yes:
        if here.output.as_json:
            raise UsageError("with --json nobody is asked", "slackwater diff --json shows the plan; give --yes to carry it out")
        if not confirmed("Carry this out?", yes=False):
            here.output.note("nothing was done")
            raise typer.Exit(FAILED)
        # Somebody has thought about it meanwhile; what is done must be what was shown.
        if plan_of(here.client, wanted, prune=prune, patterns=match or ()).sign != plan.sign:
            raise UsageError(
                "the service has changed since the plan was made", "nothing was done; look at the new plan", DIFFERENT
            )
    _do(here, plan)


def _refuse_match_alone(match: list[str] | None, *, prune: bool) -> None:
    if not prune:
        need("--prune", {"--match": match})


def _do(here: Invocation, plan: Plan) -> None:
    done: list[str] = []
    try:
        for step in carry_out(here.client, plan):
            done.append(step.name)
            here.output.say(f"{LOOK[step.action][0]} {step.kind} {step.name}  done")
    finally:
        left = len(plan.changes) - len(done)
        if left:
            here.output.note(f"{len(done)} of {len(plan.changes)} steps are done; apply again goes on where this ended", "red")
    _report(here, plan, done)
    here.output.say(f"Done: {len(done)} step{'' if len(done) == 1 else 's'}.", "bold")


def _report(here: Invocation, plan: Plan, done: list[str]) -> None:
    if here.output.as_json:
        here.output.json({**plan.json(), "done": done})


def _show(here: Invocation, plan: Plan, *, every: bool) -> None:
    if here.output.as_json:
        here.output.json(plan.json())
    else:
        show(here.output, plan, shows_all=every)


def export(
    context: typer.Context,
    root: Annotated[Path, typer.Argument(help="The directory; it is made where it is missing.", show_default=False)],
    match: Annotated[list[str] | None, typer.Option("--match", help="Only names of this pattern; can be repeated.")] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Queries as SQL instead of YAML, where that says the same.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that differ.")] = False,
) -> None:
    """Write what the service has into files, one each: streams/, tables/, queries/. Applied again they change nothing.

    What a file of another name defines already is left out, and said (exit code 3).
    """
    here = invocation_of(context)
    found = exported(here.client, patterns=match or (), as_sql=sql)
    if not found:
        raise UsageError("there is nothing to export", "slackwater get lists what there is", FAILED)
    elsewhere = defined_in(here.client, read_others(root, {each.path for each in found}))
    files = [each for each in found if not each.defines & elsewhere.keys()]
    differing = [
        each for each in files if (root / each.path).exists() and (root / each.path).read_text(encoding="utf-8") != each.text
    ]
    if differing and not overwrite:
        names = ", ".join(str(root / each.path) for each in differing[:5])
        raise UsageError(
            f"{len(differing)} file{' is there and differs' if len(differing) == 1 else 's are there and differ'}: {names}",
            "--overwrite replaces them; git shows what that changes",
            DIFFERENT,
        )
    for each in files:
        path = root / each.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(each.text, encoding="utf-8")
    if here.output.as_json:
        here.output.json([str(root / each.path) for each in files])
    here.output.say(f"{len(files)} file{'' if len(files) == 1 else 's'} in {root}")
    left_out = {str(each.path): elsewhere[min(each.defines & elsewhere.keys())] for each in found if each not in files}
    if left_out:
        for name, place in left_out.items():
            here.output.note(f"{name} is left out: {place} defines that already", "yellow")
        raise typer.Exit(DIFFERENT)
