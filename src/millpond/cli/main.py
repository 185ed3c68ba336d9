"""`millpond`: run, serve, shell, demo, check, repair, trust, token, bench.

A command imports slow packages (Spark, above all) only after its arguments, its file and its port
have been checked.
"""

from __future__ import annotations

import atexit
import logging
import os
import resource
import signal
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import millpond
from millpond.cli import manage_tokens, plan_documents
from millpond.cli.complaints import complain
from millpond.cli.config import Config, name_variable, show_config, use_config
from millpond.cli.engine_flags import with_engine_flags, with_server_flags
from millpond.cli.exported_spans import export_spans
from millpond.cli.hang_up import handle_hang_up
from millpond.cli.logs import LogFormat, LogLevel, move_log_flags, start_log
from millpond.cli.output_format import Format, ReportFormat
from millpond.cli.spark_flags import with_spark_flags
from millpond.errors import MillpondError

log = logging.getLogger("millpond.server")

#: The port of `millpond serve`, and where `millpond shell` looks for it.
PORT = 6455
#: How many open files the commands allow themselves where the system lets them.
_DESCRIPTORS = 1 << 16


class Commands(TyperGroup):
    """The commands; an error of a command is one text on stderr and exit status 1."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, move_log_flags(args))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MillpondError as error:
            complain(error)
        except typer.BadParameter as error:
            name_variable(error)
            raise
        except Exception as error:
            # Typer handles exits and usage errors, which carry their status.
            if hasattr(error, "exit_code") or isinstance(error, (typer.Abort, BrokenPipeError)):
                raise
            # A stack trace is for developers of Millpond, not for its users.
            if os.environ.get("MILLPOND_TRACE"):
                raise
            complain(
                MillpondError(
                    "INTERNAL-901",
                    f"{type(error).__name__}: {error}",
                    hint="This is a defect of Millpond. Set MILLPOND_TRACE=1 to see where.",
                )
            )
        raise typer.Exit(1)


app = typer.Typer(
    name="millpond",
    cls=Commands,
    help="Millpond: standing queries over streams.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "MILLPOND"},
)

Store = Annotated[
    Path | None,
    typer.Option(
        "--store", metavar="DIR", help="The store's directory; a temporary one if not given."
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="The URL of a Spark master; this machine if not given."
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="MILLPOND_TOKEN",
        help="The token clients send; auto: one from a file that only you can read.",
    ),
]


Secrets = Annotated[
    Path | None,
    typer.Option(
        "--secrets",
        envvar="MILLPOND_SECRETS",
        metavar="FILE",
        help="The file of the secrets that sources name: secret('name').",
    ),
]


@app.callback(invoke_without_command=True)
def options(
    ctx: typer.Context,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(help="From which level on is logged; info for serve, otherwise warning."),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option(help="The form of the log: text, or JSON lines.")
    ] = LogFormat.TEXT,
    config: Config = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Standing queries over streams."""
    # A server says what it does from its start on.
    quiet = LogLevel.INFO if ctx.invoked_subcommand == "serve" else LogLevel.WARNING
    start_log(log_level or quiet, log_format)
    use_config(ctx, config)
    _raise_descriptor_limit()
    if version:
        print(f"millpond {millpond.__version__}")
        raise typer.Exit


@app.command()
@with_spark_flags
@with_engine_flags
def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE.cql", help="The script to run; - reads it from stdin.")
    ],
    store: Store = None,
    format: Annotated[
        Format, typer.Option("--format", help="The form in which answers are printed.")
    ] = (Format.TABLE),
    master: Master = None,
    secrets: Secrets = None,
    *,
    settings: dict[str, Any],
    spark_conf: dict[str, str] | None = None,
) -> None:
    """Runs the statements of a script in order and prints their results."""
    from millpond.cli.run_script import run_script

    _use_secrets(secrets)
    export_spans()
    run_script(file, store, format, master, settings, spark_conf)


@app.command()
@with_spark_flags
@with_server_flags
@with_engine_flags
def serve(
    store: Store = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0: any free port.")] = PORT,
    shared: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The place of a store that several drivers share, of which --store is a cache: a "
            "directory that all have mounted, or s3://bucket/prefix.",
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where clients reach this server, for those that wait."),
    ] = None,
    master: Master = None,
    token: Token = None,
    secrets: Secrets = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens",
            envvar="MILLPOND_TOKENS",
            metavar="FILE",
            help="The file of the tokens of people and programs; see millpond token.",
        ),
    ] = None,
    jwt: Annotated[
        Path | None,
        typer.Option(
            "--jwt",
            metavar="FILE",
            help="The file that says which JSON Web Tokens of an identity provider are taken.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="A host name by which clients reach the server."
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin",
            metavar="ORIGIN",
            help="An origin whose web pages may call the server: https://example.org.",
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let other machines call the server without a token.")
    ] = False,
    max_body_mb: Annotated[
        int, typer.Option(min=1, help="The largest body of a request, in MB.")
    ] = 64,
    max_seconds: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help="The longest time a request, or a query's evaluation, may take, in seconds.",
        ),
    ] = None,
    max_rows: Annotated[
        int | None, typer.Option(min=1, help="The most rows an answer may have.")
    ] = None,
    max_memory: Annotated[
        str,
        typer.Option(
            help="The most memory all long evaluations may keep together, and any of them, as"
            " '1 GB'.",
        ),
    ] = "384 MB",
    audit_log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where changes and refusals are logged, as JSON lines."),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The server's certificate and its chain, in PEM."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's private key, in PEM.")
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log a line about each request.")
    ] = False,
    path_prefix: Annotated[
        str,
        typer.Option(metavar="PATH", help="The path a reverse proxy has the server under: /pond."),
    ] = "",
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="An address whose X-Forwarded-For and X-Forwarded-Proto are believed; repeatable.",
        ),
    ] = None,
    source_root: Annotated[
        list[Path] | None,
        typer.Option(help="A directory whose files clients may use as sources; repeatable."),
    ] = None,
    source_format: Annotated[
        list[str] | None,
        typer.Option(help="A source format clients may use; formats of files if not given."),
    ] = None,
    source_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A host, host:port, address or network of databases whose tables clients may "
            "have followed, with --source-format postgres; repeatable.",
        ),
    ] = None,
    backup_root: Annotated[
        list[Path] | None,
        typer.Option(
            help="A directory below which admins may have backups made over HTTP; repeatable."
        ),
    ] = None,
    sink_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A host, host:port, address or network that clients' sinks may deliver to; "
            "repeatable.",
        ),
    ] = None,
    *,
    settings: dict[str, Any],
    client_limits: dict[str, Any],
    spark_conf: dict[str, str] | None = None,
) -> None:
    """Serves a pond over HTTP: the API, the web console and the metrics."""
    from millpond.api import listening
    from millpond.api import tokens as kept_token
    from millpond.api.access import Access
    from millpond.api.client_limits import ClientLimits
    from millpond.api.rights.audit import write_audit_to
    from millpond.api.rights.jwt_tokens import read_jwt_settings
    from millpond.api.rights.token_file import read_entries
    from millpond.cli.checked_settings import check_memory, check_shared
    from millpond.cli.interpreter import collecting_nothing, shorten_turns, spare_what_stays
    from millpond.service.definitions.access_policy import AccessPolicy

    if shared is not None and store is None:
        raise typer.BadParameter("a shared store needs --store, a directory for its files")
    check_memory(max_memory)
    if shared is not None:
        check_shared(shared)
    limits = ClientLimits.of(client_limits)
    policy = AccessPolicy.of(
        source_root or (),
        source_format or (),
        sink_host or (),
        source_host or (),
        backup_root or (),
    )
    if token == kept_token.AUTO:
        token = kept_token.make_token()
        log.info("the token is in %s", kept_token.token_file())
    if tokens is not None:
        read_entries(tokens)  # raises what is wrong with the file
    if jwt is not None:
        read_jwt_settings(jwt)
    _use_secrets(secrets)
    export_spans()
    transport = listening.Transport.of(tls_cert, tls_key, path_prefix, trusted_proxy or ())
    if audit_log is not None:
        write_audit_to(audit_log)
    access = Access.of(token, [host, *(allow_host or [])], allow_origin or [], tokens, jwt)
    listener = listening.bind(host, port)
    if insecure:
        log.warning("whoever reaches %s can read and write", host)
    else:
        listening.refuse_exposure(listener, access)
    if store is None:
        log.warning("without --store everything is gone when the server ends")
    log.info("starting")
    signal.signal(signal.SIGTERM, _exit_on_signal)
    handle_hang_up()

    # What is compiled at its first import comes after all that can be refused.
    with collecting_nothing():
        from millpond.api import server
        from millpond.api.waiting import await_lead
        from millpond.model.compiled import progress
        from millpond.service.open_pond import open_pond

    progress.finish()  # before the wait to lead a shared store
    leading = None
    if shared is not None and store is not None:
        leading = await_lead(shared, store, listener, transport, advertise)
        if leading is None:
            return

    shorten_turns()

    def say_ready(url: str) -> None:
        spare_what_stays()
        server.announce(url)

    pond = open_pond(
        store,
        shared=leading,
        master=master,
        spark_conf=spark_conf,
        max_seconds=max_seconds,
        max_rows=max_rows,
        max_memory=max_memory,
        revives=True,
        **settings,
    )
    try:
        ended_by = server.serve(
            pond,
            access=access,
            insecure=insecure,
            listener=listener,
            max_body=max_body_mb * 1024 * 1024,
            max_seconds=max_seconds,
            policy=policy,
            transport=transport,
            limits=limits,
            access_log=access_log,
            on_ready=say_ready,
        )
    finally:
        pond.close()
    if ended_by == signal.SIGINT:
        raise typer.Exit(130)


@app.command()
@with_spark_flags
def shell(
    url: Annotated[
        str, typer.Option("--url", envvar="MILLPOND_URL", metavar="URL", help="The server's URL.")
    ] = f"http://127.0.0.1:{PORT}",
    store: Annotated[
        Path | None,
        typer.Option(
            "--store", metavar="DIR", help="Open this store in the shell itself, without a server."
        ),
    ] = None,
    master: Master = None,
    token: Token = None,
    secrets: Secrets = None,
    *,
    spark_conf: dict[str, str] | None = None,
) -> None:
    """Runs CQL interactively, on a server or on a store that no other process has open."""
    from millpond.cli.shell import talk

    if store is None:
        from millpond.api import tokens
        from millpond.api.client import connect

        with connect(url, tokens.read_token() if token == tokens.AUTO else token) as pond:
            failed = talk(pond, str(url))
    else:
        from millpond.service.open_pond import open_pond

        _use_secrets(secrets)
        opened = open_pond(store, master=master, spark_conf=spark_conf)
        try:
            failed = talk(opened, str(store))
        finally:
            opened.close()
    if failed:
        raise typer.Exit(1)


@app.command()
@with_spark_flags
def demo(
    serve: Annotated[
        bool, typer.Option("--serve", help="Keep a server running when the demo is over.")
    ] = False,
    port: Annotated[int, typer.Option(help="The port the server of --serve listens on.")] = PORT,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Bring the flights through a Kafka broker.")
    ] = False,
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Spread the work over a cluster on this machine."),
    ] = False,
    *,
    spark_conf: dict[str, str] | None = None,
) -> None:
    """Replays real flights through thousands of standing queries."""
    from millpond.demo.cluster import start_cluster
    from millpond.demo.run_demo import on_spark, run_demo

    if cluster and serve:
        raise typer.BadParameter("the cluster ends with the demo, so --serve cannot go with it")
    with start_cluster() if cluster else nullcontext() as started:
        scale = on_spark(spark_conf, through_kafka=kafka, cluster=started)
        run_demo(serve=serve, port=port, scale=scale)


@app.command()
def check(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store's directory.")],
    format: Annotated[
        ReportFormat, typer.Option("--format", help="The form in which the report is printed.")
    ] = (ReportFormat.TABLE),
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove the set-aside files that nothing refers to.")
    ] = False,
) -> None:
    """Checks every file of a closed store, and changes nothing."""
    from millpond.cli import check_and_repair

    if not check_and_repair.check(store, format, clean):
        raise typer.Exit(1)


@app.command()
def repair(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The damaged store.")],
    to: Annotated[
        Path, typer.Option("--to", metavar="NEW", help="The directory of the new store.")
    ],
) -> None:
    """Copies the undamaged parts of a store into a new store."""
    from millpond.cli import check_and_repair

    check_and_repair.repair(store, to)


@app.command()
def backup(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="The store's directory; it may be in use.")
    ],
    to: Annotated[Path, typer.Argument(metavar="BACKUPS", help="The directory of its backups.")],
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy each file, even where a hard link would do.")
    ] = False,
    format: Annotated[
        ReportFormat, typer.Option("--format", help="The form in which the report is printed.")
    ] = (ReportFormat.TABLE),
) -> None:
    """Adds a backup of a store, which may be in use, to a directory of backups."""
    from millpond.cli import backup_and_restore

    backup_and_restore.backup(store, to, copy, format)


@app.command()
def restore(
    backups: Annotated[Path, typer.Argument(metavar="BACKUPS", help="The directory of backups.")],
    to: Annotated[
        Path | None,
        typer.Argument(metavar="[NEW]", help="The new store; left out, the backups are listed."),
    ] = None,
    epoch: Annotated[int | None, typer.Option("--epoch", metavar="N", help="The epoch.")] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIMESTAMP", help="The last state up to this instant (UTC)."),
    ] = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy each file, even where a hard link would do.")
    ] = False,
    format: Annotated[
        ReportFormat, typer.Option("--format", help="The form in which the report is printed.")
    ] = (ReportFormat.TABLE),
) -> None:
    """Makes a new store of a backup: of the last one, an epoch, or an instant."""
    from millpond.cli import backup_and_restore

    if epoch is not None and at is not None:
        raise typer.BadParameter("--epoch and --at exclude each other")
    if to is None:
        backup_and_restore.list_backups(backups, format)
    elif not backup_and_restore.restore(backups, to, epoch, at, copy, format):
        raise typer.Exit(1)


@app.command()
def trust(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store's directory.")],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Functions to seal.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Seal all of them.")] = False,
    key: Annotated[
        Path | None, typer.Option("--key", help="The key's file.", envvar="MILLPOND_FUNCTION_KEY")
    ] = None,
) -> None:
    """Lists a store's functions, whose code runs only if your key has sealed it, or seals some."""
    from millpond.cli.trust_functions import trust_functions

    trust_functions(store, names or [], every, key)


app.add_typer(manage_tokens.app, name="token")
app.add_typer(plan_documents.app, name="plan")


@app.command()
def alerts() -> None:
    """Prints alert rules for Prometheus, for a file that its configuration names."""
    from importlib.resources import files

    print(files("millpond.service.observe").joinpath("alerts.yml").read_text(), end="")


@app.command()
def config(
    context: typer.Context,
    command: Annotated[str, typer.Argument(metavar="COMMAND", help="Whose settings.")] = "serve",
    format: Annotated[ReportFormat, typer.Option(help="The output format.")] = ReportFormat.TABLE,
) -> None:
    """Prints the settings of a command, and whether each is from the environment or a file."""
    show_config(context, command, format)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@with_spark_flags
def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a file in benchmarks/.")],
    spark_conf: dict[str, str] | None,
) -> None:
    """Runs a benchmark beside its peers; further arguments go to the benchmark.

    Settings of Spark go to each Spark that it starts, Millpond's and those it compares with.
    """
    from millpond.cli.benches import run_bench

    run_bench(name, context.args, spark_conf)


def _raise_descriptor_limit() -> None:
    """Allow this process, and the JVM it starts, as many open files as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _use_secrets(path: Path | None) -> None:
    """Have this process and Spark's workers find the secrets, if the file is one."""
    from millpond.runtime.secrets_file import VARIABLE, read_secrets

    if path is not None:
        os.environ[VARIABLE] = str(path.absolute())
        read_secrets()


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    # Until the server is up and again once it is down, SIGTERM unwinds like an exit, so that
    # what has been opened is closed.
    raise SystemExit(0)


def main() -> None:
    """The entry point."""
    try:
        app(prog_name="millpond")
    except SystemExit as end:
        _leave(end.code if isinstance(end.code, int) else int(end.code is not None))


def _leave(status: int) -> NoReturn:
    """End the process after running the functions registered with `atexit`.

    The interpreter's own teardown is left out: the threads of Spark's gateway outlive it and hold
    on to DuckDB's objects, which DuckDB would report on stderr after the last answer.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
