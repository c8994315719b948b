"""An S3 server for tests, and a proxy in front of it that cuts connections."""

import contextlib
import re
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import environment

KEY, SECRET = "key-of-test", "secret-of-test"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def moto_server(log: Path) -> Iterator[int]:
    """The port of moto's server on 127.0.0.1."""
    port = free_port()
    with log.open("wb") as file:
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                                  stdout=file, stderr=subprocess.STDOUT)  # fmt: skip
    try:
        for _ in range(150):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        yield port
    finally:
        server.terminate()
        server.wait(20)


def credentials(port: int) -> contextlib.AbstractContextManager[None]:
    """Endpoint and credentials in the environment, as for a user."""
    return environment(AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET,
                       AWS_DEFAULT_REGION="us-east-1")  # fmt: skip


@dataclass
class Cut:
    """Requests whose first line matches ``request`` are cut, ``times`` of them: after ``sent`` bytes of the request, or with
    ``answer`` when all has arrived and the answer is on its way."""

    request: str
    times: int
    sent: int = 0
    answer: bool = False
    done: int = 0


@dataclass
class Proxy:
    """Passes connections on to a port of this machine."""

    target: int
    cuts: list[Cut] = field(default_factory=list)
    port: int = 0

    def __enter__(self) -> "Proxy":
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _chosen(self, head: bytes) -> Cut | None:
        line = head.split(b"\r\n", 1)[0].decode("latin-1")
        with self._lock:
            for cut in self.cuts:
                if cut.done < cut.times and re.match(cut.request, line):
                    cut.done += 1
                    return cut
        return None

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self.target)) as server:
            cut, sent, answering = None, 0, True
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    if ready is server:
                        if cut and cut.answer:
                            _reset(client)
                            return
                        answering = True
                        client.sendall(data)
                        continue
                    # What follows an answer begins the next request of this connection.
                    if answering and re.match(rb"[A-Z]+ /", data):
                        cut, sent, answering = self._chosen(data), 0, False
                    if cut and not cut.answer and sent + len(data) > cut.sent:
                        server.sendall(data[: cut.sent - sent])
                        _reset(client)
                        return
                    sent += len(data)
                    server.sendall(data)


def _reset(connection: socket.socket) -> None:
    """Close with RST, as a machine that has gone away."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
