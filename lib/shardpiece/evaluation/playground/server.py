"""The playground behind a server, until it is interrupted."""

import os
import warnings
from collections.abc import Callable, Sequence

from shardpiece.errors import ConfigError, EnvironmentProblem, ShardpieceWarning
from shardpiece.evaluation.playground.cutting import Cutter
from shardpiece.tokenizer.loading import load

_THREADS = 4


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
    paths: Sequence[str], host: str, port: int, allow_hosts: Sequence[str], say: Callable[[str], None]
) -> None:  # pragma: no cover - the tests run it as a process
    """Listen at ``host`` and ``port`` (0: any that is free) until interrupted; ``say`` gets the page's address."""
    try:
        import waitress

        from shardpiece.evaluation.playground.app import MAX_REQUEST_BYTES, create_app, is_loopback
    except ImportError as error:
        raise EnvironmentProblem(f"the playground needs {error.name}: pip install 'shardpiece[playground]'") from None
    say("loading the tokenizers; the first time their kernels are compiled, which takes a while")
    named = {name: load(os.path.expanduser(path)) for name, path in zip(names_of(paths), paths, strict=True)}
    app = create_app(Cutter(named), host, allow_hosts)
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
