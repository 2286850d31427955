"""Starts gunicorn with workers that share the memory of their parent, and calls them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import urllib.request

N_WORKERS = 4
N_CALLERS = 8
MIN_CALLS = 200
LIMIT_SECONDS = 60.0


def main() -> None:
    command = [sys.executable, "-m", "gunicorn", "--preload", f"--workers={N_WORKERS}"]
    command += ["--bind=127.0.0.1:0", f"--worker-tmp-dir={os.environ['TMPDIR']}", "web:application"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        answers = calls(address(server))
    finally:
        server.terminate()
        server.wait(LIMIT_SECONDS)
    makers = {(maker, first) for _, maker, first, _, _ in answers}
    if len(makers) != 1:
        sys.exit(f"{len(makers)} processes imported the application")
    for maker, first in makers:
        print(maker, first)
    for worker, _, _, *numbers in answers:
        for number in numbers:
            print(worker, number)


def address(server: subprocess.Popen[str]) -> str:
    """Waits until gunicorn listens. Goes on to read what it says."""
    assert server.stderr is not None
    said = []
    for line in server.stderr:
        said.append(line)
        found = re.search(r"Listening at: (http://\S+)", line)
        if found:
            threading.Thread(target=server.stderr.read, daemon=True).start()
            return found[1]
    sys.exit("gunicorn does not listen:\n" + "".join(said))


def calls(url: str) -> list[list[int]]:
    """Calls until each worker has answered, and often enough."""
    answers: list[list[int]] = []
    until = time.monotonic() + LIMIT_SECONDS

    def is_enough() -> bool:
        return len(answers) >= MIN_CALLS and len({it[0] for it in answers}) == N_WORKERS

    def call() -> None:
        while not is_enough() and time.monotonic() < until:
            with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as reply:
                answers.append([int(word) for word in reply.read().split()])

    threads = [threading.Thread(target=call) for _ in range(N_CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not is_enough():
        sys.exit(f"vacuous: {len(answers)} answers of {len({it[0] for it in answers})} workers")
    return answers


if __name__ == "__main__":
    main()
