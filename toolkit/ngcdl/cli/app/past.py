"""The commands about runs that exist, ended or still running."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ngcdl.cli import completed, options
from ngcdl.cli.app.root import MORE, RUNS, app
from ngcdl.cli.app.sections import Application
from ngcdl.cli.options import Detach, Json, JsonWatched, RunName, Yes

past = Application(
    invoke_without_command=True,
    subcommand_metavar="[COMMAND [ARGS]...]",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(past, name="runs", rich_help_panel=RUNS)


@past.callback()
def runs(
    context: typer.Context,
    json: Json = False,
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="List all, not only the newest 20; --json always does.")
    ] = False,
) -> None:
    """List the runs; or diff, replay, export, import and remove them.

    BUSY is how busy the run's own GPUs were; without one, all processors of the machine, whoever used them.
    In a narrow terminal only the most important columns are shown, and of each id only its end, which RUN accepts,
    too. A pipe gets everything."""
    if context.invoked_subcommand is None:
        from ngcdl.cli.runs import runs

        runs(json, everything)
    elif json or everything:
        _refuse_before(context.invoked_subcommand, "--json" if json else "--all")


def _refuse_before(command: str, option: str) -> None:
    """Raise BadOption: an option of the list was typed before another command, which would not get it."""
    from ngcdl.cli.typed import again
    from ngcdl.errors import BadOption

    words = [word for word in sys.argv[1:] if word not in ("--json", "--all", "-a")]
    if option == "--json" and command in ("diff", "replay"):
        hint = again([*words[:2], option, *words[2:]])
    else:
        hint = f"    ngcdl runs {command} --help"
    raise BadOption(f"runs {option} {command}: what stands before {command} is for the list of runs.", hint)


@past.command("diff")
def runs_diff(
    one: Annotated[str, options.run(metavar="A", help=options.RUN_HELP)],
    other: Annotated[str, options.run(metavar="B", help="Another, named the same way.")],
    json: Json = False,
) -> None:
    """Show what differs between two runs.

    In what was asked, what they ran on, and what they achieved."""
    from ngcdl.cli.past import diff

    diff(one, other, json)


@past.command("replay")
def runs_replay(
    run: RunName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what it would start; start nothing.")] = False,
    detach: Detach = False,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Also replay a run that was imported or changed: it gets the folders it names."),
    ] = False,
    json: Json = False,
) -> int:
    """Repeat a run.

    With the same image by digest, the same command, seed and data."""
    from ngcdl.cli.past import replay

    return replay(run, dry_run, detach, json, trust)


@past.command("export", epilog="\b\nExample:\n  ngcdl runs export last last-1 both.tar")
def runs_export(
    words: Annotated[
        list[str],
        options.run_or_comparison(
            metavar="RUN|COMPARISON... FILE.tar", help="What to export, and last the file to write; - is stdout."
        ),
    ],
) -> None:
    """Write runs into one file, with checksums.

    Their records, samples, logs and checkpoints; for a comparison, all of its runs."""
    from ngcdl.cli.past import export

    export(tuple(words))


@past.command("import")
def runs_import(
    file: Annotated[str, typer.Argument(metavar="FILE.tar", help="What `ngcdl runs export` wrote; - is stdin.")],
) -> None:
    """Import runs and comparisons; every file is checked."""
    from ngcdl.cli.past import take_in

    take_in(file)


@past.command("rm", epilog="\b\nExamples:\n  ngcdl runs rm last last-1\n  ngcdl runs rm --older-than 30d --keep-record")
def runs_rm(
    names: Annotated[
        list[str] | None,
        options.run_or_comparison(
            metavar="RUN...", help="last, last-1, ids, their beginning or end, or a --name; also of comparisons."
        ),
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="All that ended that long ago: 12h, 30d, 8w.")
    ] = None,
    keep_record: Annotated[
        bool,
        typer.Option(
            "--keep-record",
            help="Remove only what is large: checkpoints, the run's home folder, what its command wrote. show, report "
            "and replay still work.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List them with their sizes; remove nothing.")] = False,
    yes: Yes = False,
) -> int:
    """Remove runs that have ended, with their checkpoints.

    It lists them with their sizes, and asks once."""
    from ngcdl.cli.removal import Asked, remove

    return remove(Asked(tuple(names or ()), older_than, keep_record, dry_run, yes))


@app.command(
    rich_help_panel=RUNS, epilog="\b\nExamples:\n  ngcdl report\n  ngcdl report last last-1 --html both.html --open"
)
def report(
    run: Annotated[
        list[str] | None,
        options.run_or_comparison(
            metavar="RUN...",
            help="last (the default), last-1, ids, their beginning or end, or a --name; also of a comparison.",
        ),
    ] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="A self-contained page.")] = None,
    png: Annotated[str | None, typer.Option(metavar="FILE", help="The page as an image; needs Chromium.")] = None,
    markdown: Annotated[str | None, typer.Option(metavar="FILE", help="Verdict and table; - is stdout.")] = None,
    csv: Annotated[str | None, typer.Option(metavar="FILE", help="Every logged step and sample; - is stdout.")] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Make a page about a run, several runs, or a comparison.

    Without options it is report.html in the run's folder, for several runs report-of-N.html in that of the first."""
    from ngcdl.cli.report import Asked, report

    report(tuple(run or ()), Asked(html, png, markdown, csv, open_it))


@app.command(rich_help_panel=RUNS, epilog="\b\nExample:\n  ngcdl show last --watch 1")
def show(
    run: RunName = "last",
    json: JsonWatched = False,
    watch: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="While the run goes on, print what it is doing every SECONDS."),
    ] = None,
) -> None:
    """Show one run's record."""
    from ngcdl.cli.runs import show

    show(run, json, watch)


@app.command(rich_help_panel=RUNS, epilog="\b\nExample:\n  ngcdl logs last -f -n 20")
def logs(
    run: RunName = "last",
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing while it runs.")] = False,
    tail: Annotated[int | None, typer.Option("-n", "--tail", metavar="N", help="Only the last N lines.")] = None,
) -> None:
    """Print what a run wrote."""
    from ngcdl.cli.logs import logs

    logs(run, follow, tail)


@app.command(
    rich_help_panel=RUNS,
    context_settings={"ignore_unknown_options": True},  # of a command without --
    epilog="Exit codes: the command's own; 137 if the run ends first; otherwise as for run.\n\n"
    "\b\nExamples:\n  ngcdl exec last\n  ngcdl exec last -- nvidia-smi\n"
    "  tar -cf - src | ngcdl exec last -- tar -xf - -C /tmp",
)
def exec(
    context: typer.Context,
    run: Annotated[str, options.run(metavar="RUN", help=options.RUN_HELP, autocompletion=completed.running)] = "last",
    stray: Annotated[list[str] | None, typer.Argument(hidden=True, metavar="-- COMMAND")] = None,
    habit: Annotated[bool, typer.Option("-i", "-t", "--interactive", "--tty", hidden=True)] = False,
) -> int:
    """Open a shell in a run that goes on, or run a command there.

    As the run's user, in its folder, with its variables. The command has a terminal if stdin and stdout are one; Ctrl-C
    reaches it, and never the run."""
    del habit  # typed for docker: there is a terminal, or a pipe, anyway
    if stray:
        from ngcdl.cli.typed import again
        from ngcdl.errors import BadOption

        words = [word for word in sys.argv[1:] if word != "--"]
        after = words.index(run) + 1 if run in words else 1
        at = words.index(stray[0], after) if stray[0] in words[after:] else after  # typer takes -t out of -uroot
        raise BadOption("exec: the command goes after --.", again([*words[:at], "--", *words[at:]]))
    from ngcdl.cli.visit import visit

    return visit(run, context.obj or ())


@app.command(
    rich_help_panel=RUNS,
    epilog="Exit codes: as run has them without --detach.\n\n"
    "\b\nExamples:\n  id=$(ngcdl run -d pytorch -- python train.py) &&\n      ngcdl wait $id && ngcdl report $id\n"
    "  ngcdl wait lr3 lr4 && ngcdl report lr3 lr4",
)
def wait(
    run: Annotated[
        list[str] | None,
        options.run(metavar="RUN...", help="last (the default), last-1, ids, their beginning or end, or a --name."),
    ] = None,
    everything: Annotated[bool, typer.Option("-a", "--all", help="Wait for all that have not ended.")] = False,
) -> int:
    """Wait for runs to end; exit with the first failure's exit code."""
    from ngcdl.cli.runs import wait

    return wait(run or (), everything)


@app.command(rich_help_panel=MORE, epilog="\b\nExample:\n  ngcdl export k8s last > job.yaml")
def export(
    form: Annotated[str, options.argument(metavar="slurm|k8s|compose", help="For a cluster, or for docker compose.")],
    run: RunName = "last",
) -> None:
    """Print a run as a script, manifest or compose file, for git."""
    from ngcdl.cli.export import export

    export(form, run)


@app.command(rich_help_panel=RUNS)
def stop(
    run: Annotated[
        str | None,
        options.run_or_comparison(
            metavar="RUN", help="last, last-1, an id, its beginning or end, or a --name; also of a comparison."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="Stop all that have not ended: list them, and ask once.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Stop a run; a training saves a checkpoint first.

    Of a comparison all runs that are left are stopped."""
    from ngcdl.cli.stop import stop

    return stop(run, everything, yes)
