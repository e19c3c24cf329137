"""A stand-in for sudo: a program on the PATH of an ordinary user whose commands are run by the test itself, which is root.

`Sudo(folder)` puts `sudo` into `folder/bin`. As the real one with `-n` it passes descriptors and the exit status on, asks nothing,
and refuses if its `allows` says so.
"""

import array
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

PROGRAM = """#!/usr/bin/python3
import array, json, socket, sys
with socket.socket(socket.AF_UNIX) as helper:
    helper.connect(%r)
    told = json.dumps(sys.argv[1:]).encode() + b"\\n"
    helper.sendmsg([told], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    sys.exit(int(helper.makefile().readline() or 1))
"""
NOBODY = 65534


class Sudo:
    def __init__(self, folder: Path) -> None:
        self.asked: list[list[str]] = []
        self.allows: Callable[[list[str]], bool] = lambda argv: True
        self.children: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True)
        for place in (folder, *folder.parents):
            if place.owner() == "root" and place.stat().st_mode & 0o001 == 0:
                place.chmod(place.stat().st_mode | 0o011)
        self.bin = folder / "bin"
        self.bin.mkdir()
        address = str(folder / "socket")
        program = self.bin / "sudo"
        program.write_text(PROGRAM % address)
        program.chmod(0o755)
        # Not the tests' own: that may lie in a folder of root's.
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
        self.python = self.bin / "python-of-nobody"
        """Runs this Python as an ordinary user."""
        self.python.write_text(f'#!/bin/sh\nexec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups {python} "$@"\n')
        self.python.chmod(0o755)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        os.chmod(address, 0o777)
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}:{os.environ['PATH']}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for child in self.children:
            child.kill()
            child.wait()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        with connection:
            data, ancillary, _, _ = connection.recvmsg(65536, socket.CMSG_SPACE(12))
            fds = array.array("i")
            for _, _, sent in ancillary:
                fds.frombytes(sent[:12])
            argv = json.loads(data)
            self.asked.append(argv)
            stdin, stdout, stderr = fds
            try:
                if argv[:1] != ["-n"] or not self.allows(argv[1:]):
                    os.write(stderr, b"sudo: a password is required\n")
                    connection.sendall(b"1\n")
                    return
                child = subprocess.Popen(argv[1:], stdin=stdin, stdout=stdout, stderr=stderr, env={**os.environ, **self.env})
                self.children.append(child)
            finally:
                for number in fds:
                    os.close(number)
            status = child.wait()
            with contextlib.suppress(OSError):  # nobody waits for it any more
                connection.sendall(b"%d\n" % status)
