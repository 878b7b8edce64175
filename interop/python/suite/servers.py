"""Starts and stops our server.

A server is ready when it prints `Started`. Its port and its CA are read from the
banner, which it prints before that. It is terminated at the end of the suite, and
killed if it does not stop in time.
"""

import os
import re
import selectors
import subprocess
import tempfile
import time
from pathlib import Path

START_SECONDS_MAX = 20.0
# Longer than the time that the server gives to running requests when it stops.
END_SECONDS_MAX = 12.0

ROOT = Path(__file__).resolve().parents[3]


def binary():
    """The binary to test: `PERIHELION_BIN`, or the newest of the builds of this checkout."""
    named = os.environ.get("PERIHELION_BIN")
    if named:
        if not Path(named).is_file():
            raise RuntimeError(f"PERIHELION_BIN is {named}, which is not a file")
        return Path(named).resolve()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [target / profile / "perihelion" for profile in ("dist", "release", "debug")]
    built = [path for path in built if path.is_file()]
    if not built:
        raise RuntimeError("no binary: run `cargo build -p perihelion`, or set PERIHELION_BIN")
    return max(built, key=lambda path: path.stat().st_mtime)


class Server:
    """Our server as a child process, on the port `port` or on a free one."""

    def __init__(self, *options, port=0):
        # The server must not see settings of the caller's shell.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PERIHELION_")}
        self.log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(
            [binary(), "dev", "--port", str(port), *options],
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
        )
        try:
            banner = self._read_banner()
        except BaseException:
            self.end()
            raise
        self.port = int(re.search(r"https://[^ /]*:(\d+)/", banner).group(1))
        self.endpoint = f"https://localhost:{self.port}/"
        found = re.search(r"^  CA +(\S.*?) \(print it", banner, re.MULTILINE)
        self.ca_path = found and found.group(1)

    def _read_banner(self):
        """The output of the server up to and including `Started`."""
        text = b""
        deadline = time.monotonic() + START_SECONDS_MAX
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\nStarted" not in text:
                seconds_left = deadline - time.monotonic()
                if seconds_left <= 0 or not selector.select(seconds_left):
                    raise RuntimeError(f"the server did not start in {START_SECONDS_MAX} s: {self.log_text()}")
                piece = os.read(self.process.stdout.fileno(), 4096)
                if not piece:
                    raise RuntimeError(f"the server ended while starting: {self.log_text()}")
                text += piece
        return text.decode()

    def log_text(self):
        """The standard error of the server."""
        self.log.seek(0)
        return self.log.read()

    def kill(self):
        """Kills the server, so that it cannot stop in an orderly way."""
        self.process.kill()
        self.process.wait()

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
