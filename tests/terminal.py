"""A program on a terminal of its own, for tests: typed at, read from, sent signals."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

PATIENCE = 120  # seconds that an expected text may take on a busy machine


class Terminal:
    """Runs a program with standard input and error, and output unless it is given, on a new terminal."""

    def __init__(self, command, env=None, columns=100, stdout=None):
        self.text = ""       # what it has shown and expect() has not gone past
        self.shown = ""      # all that it has shown
        self.pieces = []     # the same as it came
        self.status = None
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
            if stdout is not None:
                os.dup2(stdout, 1)
            os.execve(command[0], command, {"TERM": "xterm", "PATH": os.environ["PATH"], **(env or {})})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.file)

    def type(self, text):
        os.write(self.file, text.encode())

    def kill(self, number):
        os.kill(self.pid, number)

    def num_threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def read_some(self, seconds):
        """Takes in what the program shows within the time; returns whether there may be more."""
        if not select.select([self.file], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.file, 65536).decode(errors="replace")
        except OSError:  # the program has ended
            return False
        self.text += piece
        self.shown += piece
        self.pieces.append(piece)
        return piece != ""

    def expect(self, pattern):
        """Waits until the pattern is shown; returns what came before it and goes on from there."""
        end = time.monotonic() + PATIENCE
        more = True
        while not (found := re.search(pattern, self.text, re.DOTALL)):
            if not more or time.monotonic() > end:
                raise AssertionError(f"{pattern!r} was not shown, but {self.text!r}")
            more = self.read_some(0.2)
        before, self.text = self.text[:found.start()], self.text[found.end():]
        return before

    def wait(self):
        """Waits for the end of the program; returns its exit code, or minus the signal that ended it."""
        end = time.monotonic() + PATIENCE
        while self.read_some(0.2):
            if time.monotonic() > end:
                raise AssertionError(f"the program has not ended; it shows {self.text!r}")
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status


def plain(text):
    """The text without what moves the cursor or colours it."""
    return re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n").replace("\r", "")
