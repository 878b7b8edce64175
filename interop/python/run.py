#!/usr/bin/env python3
"""Checks of our server with the official Python SDK: `python3 interop/python/run.py`.

This script needs only Python's standard library to start. It creates a virtual
environment beside itself, installs the pinned requirements once, and runs
itself again in that environment. Then it starts the servers (one binary with
three sets of options) and runs every check. It prints one line per check and a
closing line `N passed, N failed, N skipped`. The exit code is 1 if a check
failed, and 2 if the suite could not run.

    PERIHELION_BIN              the binary to start [the newest build in target/: dist, release or debug]
    PERIHELION_ENDPOINT         a running server with --merge-in-gateway, used instead of a new one
    PERIHELION_ENDPOINT_FOUR    a running server with --partitions 4 --merge-in-gateway
    PERIHELION_ENDPOINT_STRICT  a running server with --partitions 4, without --merge-in-gateway
    PERIHELION_KEY              the key of those servers [the emulators' well-known key]

If any endpoint is given, the checks for servers without an endpoint are skipped.
Checks that start a server of their own then run only if PERIHELION_BIN is set.
`--only TEXT` runs the checks whose name contains TEXT. `--list` prints their names.
"""

import argparse
import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE / ".venv"
REQUIREMENTS = HERE / "requirements.txt"
# The variable that is set for the second start, so that a broken environment does not
# start the script again and again.
INSIDE_VARIABLE = "PERIHELION_INTEROP_PYTHON_INSIDE"


def enter_environment():
    """Creates the virtual environment unless it matches the requirements, and runs
    this file again in it. Two runs at once wait for each other."""
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / "installed"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    lock = os.open(HERE, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == wanted and python.exists()):
            print("installing azure-cosmos into", ENVIRONMENT, file=sys.stderr, flush=True)
            venv.create(ENVIRONMENT, clear=True, with_pip=True)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "--no-deps", "-r", REQUIREMENTS], check=True, stdout=sys.stderr)
            subprocess.run([python, "-m", "pip", "check"], check=True, stdout=sys.stderr)
            stamp.write_text(wanted)
    finally:
        os.close(lock)
    os.environ[INSIDE_VARIABLE] = "1"
    os.execv(python, [str(python), str(HERE / "run.py"), *sys.argv[1:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", default="", help="run the checks whose name contains TEXT")
    parser.add_argument("--list", action="store_true", help="name the checks and end")
    arguments = parser.parse_args()
    if os.environ.get(INSIDE_VARIABLE) != "1":
        enter_environment()
    from suite import runner

    return runner.main(only=arguments.only, is_listing=arguments.list)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"interop/python cannot run: {error}", file=sys.stderr)
        sys.exit(2)
