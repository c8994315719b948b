"""The playground behind a server, until it is interrupted."""

import os
import re
import warnings
from collections.abc import Callable, Sequence

from shardpiece.errors import ConfigError, EnvironmentProblem, ShardpieceWarning
from shardpiece.evaluation.playground.cutting import Cutter
from shardpiece.tokenizer.loading import load

_THREADS = 4


def named(choices: Sequence[str]) -> dict[str, str]:
    """Paths by name: of each NAME=PATH, or a path, which is named after itself. Raises ConfigError for two of one name."""
    found: list[tuple[str | None, str]] = []
    for choice in choices:
        name, equals, path = choice.partition("=")
        own = bool(equals and name) and not re.search(r"[/\\:]", name)
        found.append((name, path) if own else (None, choice))
    short = iter(names_of([path for name, path in found if name is None]))
    names = [name or next(short) for name, _ in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"two tokenizers are named {twice[0]!r}: give NAME=PATH for one of them")
    return dict(zip(names, (path for _, path in found), strict=True))


def names_of(paths: Sequence[str]) -> list[str]:
    """Short names that differ: of each path as many of its last parts as it takes."""
    if len(set(paths)) != len(paths):
        raise ConfigError("a tokenizer is given twice")
    parts = [path.rstrip("/").split("/") for path in paths]
    for depth in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def serve(
    choices: Sequence[str], host: str, port: int, allow_hosts: Sequence[str], say: Callable[[str], None]
) -> None:  # pragma: no cover - the tests run it as a process
    """Listen at ``host`` and ``port`` (0: any that is free) until interrupted; ``say`` gets the page's address."""
    try:
        import waitress

        from shardpiece.evaluation.playground.app import MAX_REQUEST_BYTES, create_app, is_loopback
    except ImportError as error:
        raise EnvironmentProblem(f"the playground needs {error.name}: pip install 'shardpiece[playground]'") from None
    paths = named(choices)
    say("loading the tokenizers; the first time their kernels are compiled, which takes a while")
    tokenizers = {name: load(os.path.expanduser(path)) for name, path in paths.items()}
    app = create_app(Cutter(tokenizers), host, allow_hosts)
    if not is_loopback(host):
        warnings.warn(
            f"the playground listens at {host}: whoever reaches this machine can use it, and what is typed travels "
            f"unencrypted",
            ShardpieceWarning,
            stacklevel=2,
        )
    try:
        server = waitress.create_server(
            app, host=host, port=port, threads=_THREADS, ident=None, max_request_body_size=MAX_REQUEST_BYTES,
            # Or requests and answers that are long would go through files.
            inbuf_overflow=2 * MAX_REQUEST_BYTES, outbuf_overflow=1 << 30,
        )  # fmt: skip
    except OSError as error:
        raise ConfigError(f"cannot listen at {host} port {port}: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"cannot listen at {host} port {port}: {error}") from None
    listening = getattr(server, "effective_port", None) or server.effective_listen[0][1]
    say(f"playground at http://{f'[{host}]' if ':' in host else host}:{listening}/ (Ctrl-C ends it)")
    try:
        server.run()
    finally:
        server.close()
