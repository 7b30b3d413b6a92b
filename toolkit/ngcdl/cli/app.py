"""The commands and their options: what typer makes of argv. Heavy modules load where they are used."""

from __future__ import annotations

from typing import Annotated

import typer

from ngcdl.cli import options
from ngcdl.cli.options import Json

app = typer.Typer(
    name="ngcdl",
    help="NVIDIA's training containers in one line: sign in, pull, launch, train, measure, record.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich would double the time of --help
    pretty_exceptions_enable=False,  # tracebacks of typer show locals, and locals can hold keys
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: the container's own; 125 ngcdl or the engine failed; 126 and 127 as docker run; 2 usage.",
)

RunName = Annotated[str, typer.Argument(metavar="RUN", help="last, last-1, an id, or the beginning or end of one.")]
ImageName = Annotated[str, typer.Argument(metavar="IMAGE", help="tensorflow:18.01-py2, nvcr.io/nvidia/pytorch:...")]


def _version(wanted: bool) -> None:
    if wanted:
        from ngcdl import __version__

        typer.echo(f"ngcdl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


@app.command()
def login(
    password_stdin: Annotated[bool, typer.Option("--password-stdin", help="Read the key from stdin.")] = False,
    registry: Annotated[str | None, typer.Argument(metavar="REGISTRY", help="Another host than nvcr.io.")] = None,
) -> None:
    """Sign in to nvcr.io with an NGC API key: asked for hidden, from stdin, or from NGC_API_KEY."""
    from ngcdl.cli.login import login

    login(registry, password_stdin)


@app.command()
def logout(registry: Annotated[str | None, typer.Argument(metavar="REGISTRY")] = None) -> None:
    """Forget the key."""
    from ngcdl.cli.login import logout

    logout(registry)


@app.command()
def pull(
    image: ImageName,
    force: Annotated[bool, typer.Option("--force", help="Also an image that can't run here.")] = False,
) -> None:
    """Fetch an image and check its digest; cut or killed, it goes on from the bytes that came."""
    from ngcdl.cli.images import pull

    pull(image, force)


HostTyped = Annotated[
    str | None,
    typer.Option("--host", metavar="FACTS", help="Another machine: driver=535.104.05,cc=7.5,brand=tesla,arch=amd64."),
]
CardTyped = Annotated[
    list[str] | None, typer.Option("--gpu", metavar="FACTS", help="One of its cards: cc=8.0,brand=tesla. Repeatable.")
]


@app.command(
    epilog="Exit codes: 0 it runs, 1 it runs with a caution, 2 it can't; 125 nothing is known of it.\n\n"
    "Examples:\n\n  ngcdl check pytorch:25.03-py3\n\n"
    "  ngcdl check tensorflow:24.05-tf2-py3 --host driver=470.57.02,gpu=T4"
)
def check(image: ImageName, host: HostTyped = None, gpu: CardTyped = None, json: Json = False) -> int:
    """Say before the pull whether an image can run here, why, and which is the newest tag that does."""
    from ngcdl.cli.images import check

    return check(image, host, tuple(gpu or ()), json)


@app.command(epilog="Examples:\n\n  ngcdl images\n\n  ngcdl images pytorch --all")
def images(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="tensorflow, pytorch, nvidia/cuda, ...; both frameworks.")
    ] = None,
    everything: Annotated[bool, typer.Option("-a", "--all", help="Not only the newest ten.")] = False,
    host: HostTyped = None,
    gpu: CardTyped = None,
    json: Json = False,
) -> None:
    """List the registry's tags, newest first, with what is inside, the size and whether it runs here."""
    from ngcdl.cli.images import images

    images(name, everything, host, tuple(gpu or ()), json)


@app.command(epilog="Example:\n\n  docker run --rm --gpus all $(ngcdl resolve pytorch) nvidia-smi")
def resolve(
    name: Annotated[str, typer.Argument(metavar="NAME", help="tensorflow, pytorch, or a tag to take the kind of.")],
    host: HostTyped = None,
    gpu: CardTyped = None,
    json: Json = False,
) -> None:
    """Print the newest reference that runs here, by digest, and nothing else."""
    from ngcdl.cli.images import resolve

    resolve(name, host, tuple(gpu or ()), json)


@app.command(
    epilog="Examples:\n\n  ngcdl run --train cifar10\n\n  ngcdl run tensorflow:18.01-py2\n\n"
    "  ngcdl run tensorflow:18.01-py2 --train cifar10 --gpus all\n\n"
    "  ngcdl run pytorch:24.05-py3 -v /data:/data:ro -- python train.py --epochs 3"
)
def run(
    context: typer.Context,
    image: Annotated[
        str | None, typer.Argument(metavar="IMAGE", help="What to run; the command for it after --.")
    ] = None,
    stray: Annotated[list[str] | None, typer.Argument(hidden=True, metavar="-- COMMAND")] = None,
    train: options.Train = None,
    steps: options.Steps = None,
    batch: options.Batch = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    data: options.Data = "auto",
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Go on from the last checkpoint of a run.")] = None,
    no_eval: Annotated[bool, typer.Option("--no-eval", help="Don't test the trained network.")] = False,
    gpus: options.Gpus = "auto",
    device: options.Device = None,
    engine: options.EngineName = "auto",
    volume: options.Volumes = None,
    env: options.Variables = None,
    publish: Annotated[
        list[str] | None, typer.Option("-p", "--publish", metavar="HOST:CONTAINER", help="Publish a port.")
    ] = None,
    shm_size: options.ShmSize = "1g",
    ulimit: options.Limits = None,
    workdir: Annotated[str | None, typer.Option("-w", "--workdir", metavar="DIR", help="In the container.")] = None,
    interactive: Annotated[
        bool, typer.Option("-i", "--interactive", help="Pass stdin on, also when it is no terminal.")
    ] = False,
    tty: Annotated[bool, typer.Option("-t", "--tty", hidden=True)] = False,
    rm: Annotated[bool, typer.Option("--rm", hidden=True)] = False,
    root: options.AsRoot = False,
    pull: options.Pull = "missing",
    force: options.Force = False,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Print the run's id and let it go on.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the request and the equal docker command; start nothing.")
    ] = False,
    json: Json = False,
) -> int:
    """Run a bundled training, a command or a shell in an image, measured and recorded."""
    del tty, rm  # typed out of habit: a terminal is taken where there is one, and no container is left behind
    from ngcdl.cli import run as it

    typed = it.Typed(
        image=image,
        stray=tuple(stray or ()),
        command=context.obj or (),
        train=train,
        steps=steps,
        batch=batch,
        seed=seed,
        threads=threads,
        data=data,
        resume=resume,
        evaluate=not no_eval,
        gpus=gpus,
        device=device,
        engine=engine,
        volumes=tuple(volume or ()),
        environment=tuple(env or ()),
        ports=tuple(publish or ()),
        shm_size=shm_size,
        ulimits=tuple(ulimit or ()),
        workdir=workdir,
        interactive=interactive,
        root=root,
        pull=pull,
        force=force,
        detach=detach,
        dry_run=dry_run,
        json=json,
    )
    return it.run(typed)


@app.command(
    epilog="Exit codes: 0 compared, or nothing to compare with; 1 refused; 125 ngcdl or the engine failed.\n\n"
    "Examples:\n\n  ngcdl compare tensorflow:18.01-py2 --train cifar10\n\n"
    "  ngcdl compare --train cifar10 --vary threads=1,2,4 --gpus none\n\n"
    "  ngcdl compare tensorflow:24.05-tf2-py3 pytorch:24.05-py3 --train cifar10"
)
def compare(
    context: typer.Context,
    image: Annotated[list[str] | None, typer.Argument(metavar="IMAGE...", help="Several are compared.")] = None,
    train: options.Train = None,
    vary: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=A,B", help="batch, threads, seed, gpus, image or framework; without it CPU against GPU."
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(help="Rounds; of one alone no ratio is given.")] = 3,
    show: Annotated[str | None, typer.Option(metavar="ID|last", help="Print one from its records again.")] = None,
    steps: options.Fewer = None,
    batch: options.Batch = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    data: options.Data = "auto",
    gpus: options.Gpus = "auto",
    device: options.Device = None,
    engine: options.EngineName = "auto",
    volume: options.Volumes = None,
    env: options.Variables = None,
    shm_size: options.ShmSize = "1g",
    ulimit: options.Limits = None,
    root: options.AsRoot = False,
    pull: options.Pull = "missing",
    force: options.Force = False,
    json: Json = False,
) -> int:
    """Train the same in turn, on the CPU and on the GPU or with something else varied, and say how they compare."""
    from ngcdl.cli import compare as it
    from ngcdl.cli.run import Typed

    if show:
        return it.show(show, json)
    images = tuple(image or ())
    typed = Typed(
        image=images[0] if images else None,
        command=context.obj or (),
        train=train,
        steps=steps,
        batch=batch,
        seed=seed,
        threads=threads,
        data=data,
        evaluate=False,  # what is compared is the speed of the training
        gpus=gpus,
        device=device,
        engine=engine,
        volumes=tuple(volume or ()),
        environment=tuple(env or ()),
        shm_size=shm_size,
        ulimits=tuple(ulimit or ()),
        root=root,
        pull=pull,
        force=force,
        json=json,
    )
    return it.compare(typed, images[1:], vary, repeat)


@app.command()
def workloads(json: Json = False) -> None:
    """List the bundled trainings: parameters, work for an example, batch, where they are from."""
    from ngcdl.cli.workloads import workloads

    workloads(json)


@app.command(
    epilog="Exit codes: as of compare; 1 where one of the comparisons was refused.\n\n"
    "Examples:\n\n  ngcdl suite seeds tensorflow:18.01-py2\n\n  ngcdl suite table7 --budget 60"
)
def suite(
    name: Annotated[str, typer.Argument(metavar="seeds|table7", help="Whose experiments.")],
    image: Annotated[str | None, typer.Argument(metavar="IMAGE", help="As of run.")] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="No experiment and no round begins later.")
    ] = None,
    repeat: Annotated[int, typer.Option(help="Rounds of each comparison.")] = 3,
    steps: options.Fewer = None,
    data: options.Data = "auto",
    gpus: options.Gpus = "auto",
    engine: options.EngineName = "auto",
    json: Json = False,
) -> int:
    """Run published experiments as comparisons on this machine, beside what was published of them."""
    from ngcdl.cli.run import Typed
    from ngcdl.cli.suite import suite

    typed = Typed(image=image, steps=steps, data=data, evaluate=False, gpus=gpus, engine=engine, json=json)
    return suite(name, typed, repeat, budget)


@app.command()
def gpu(
    json: Json = False,
    watch: Annotated[float | None, typer.Option(metavar="SECONDS", help="Read again and again.")] = None,
) -> None:
    """Show what the NVIDIA driver says of each GPU."""
    from ngcdl.cli.gpu import gpu

    gpu(json, watch)


@app.command(
    epilog="Exit codes: 0 all links are ok or only warned of, 1 one is broken.\n\n"
    "Examples:\n\n  ngcdl doctor\n\n  ngcdl doctor --bundle report.tar.gz"
)
def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Offer each remedy, and run it after a yes.")] = False,
    json: Json = False,
    bundle: Annotated[
        str | None, typer.Option("--bundle", metavar="FILE", help="Also write a redacted .tar.gz for a bug report.")
    ] = None,
) -> int:
    """Look at the whole chain, from the driver to the data set: what is wrong, and the next command to type."""
    from ngcdl.cli.doctor import doctor

    return doctor(fix, json, bundle)


past = typer.Typer(
    invoke_without_command=True, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
)
app.add_typer(past, name="runs")


@past.callback()
def runs(
    context: typer.Context,
    json: Json = False,
    everything: Annotated[bool, typer.Option("-a", "--all", help="Not only the newest 20.")] = False,
) -> None:
    """List the recorded runs, newest first; or diff, replay, export and import them."""
    if context.invoked_subcommand is None:
        from ngcdl.cli.runs import runs

        runs(json, everything)


@past.command("diff")
def runs_diff(
    one: Annotated[str, typer.Argument(metavar="A", help="A run, as RUN elsewhere.")],
    other: Annotated[str, typer.Argument(metavar="B")],
    json: Json = False,
) -> None:
    """Show what differs between two runs: what was asked, what they ran on, and what they reached."""
    from ngcdl.cli.past import diff

    diff(one, other, json)


@past.command("replay")
def runs_replay(
    run: RunName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the request; start nothing.")] = False,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Print the run's id and let it go on.")] = False,
    json: Json = False,
) -> int:
    """Run the same once more: same image by digest, same command, same seed and data."""
    from ngcdl.cli.past import replay

    return replay(run, dry_run, detach, json)


@past.command("export", epilog="Example:\n\n  ngcdl runs export last last-1 both.tar")
def runs_export(
    words: Annotated[list[str], typer.Argument(metavar="RUN... FILE.tar")],
) -> None:
    """Write runs with their records, samples, logs and checkpoints into one file, with checksums."""
    from ngcdl.cli.past import export

    export(tuple(words))


@past.command("import")
def runs_import(
    file: Annotated[str, typer.Argument(metavar="FILE.tar", help="What `ngcdl runs export` wrote.")],
) -> None:
    """Take in runs from another machine, checked file by file."""
    from ngcdl.cli.past import take_in

    take_in(file)


@app.command(epilog="Examples:\n\n  ngcdl report\n\n  ngcdl report last last-1 --html both.html --open")
def report(
    run: Annotated[list[str] | None, typer.Argument(metavar="RUN", help="last (the default), ids, or a comparison's.")] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="A page that needs nothing else.")] = None,
    png: Annotated[str | None, typer.Option(metavar="FILE", help="The page as a picture; needs Chromium.")] = None,
    markdown: Annotated[str | None, typer.Option(metavar="FILE", help="Verdict and table; - is stdout.")] = None,
    csv: Annotated[str | None, typer.Option(metavar="FILE", help="Every logged step and sample.")] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Make a page of one run, of several side by side, or of a comparison: verdict, figures, charts, conditions."""
    from ngcdl.cli.report import Asked, report

    report(tuple(run or ()), Asked(html, png, markdown, csv, open_it))


@app.command()
def show(run: RunName = "last", json: Json = False) -> None:
    """Show one run's record."""
    from ngcdl.cli.runs import show

    show(run, json)


@app.command()
def logs(
    run: RunName = "last", follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on while it runs.")] = False
) -> None:
    """Print what a run wrote."""
    from ngcdl.cli.runs import logs

    logs(run, follow)


@app.command()
def stop(run: RunName) -> None:
    """Stop a run: it saves a checkpoint, and its record is closed."""
    from ngcdl.cli.runs import stop

    stop(run)
