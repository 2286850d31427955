"""Takes numbers in the processes of a pool, which begin as the argument says."""

from __future__ import annotations

import multiprocessing
import sys

N_PROCESSES = 4
N_EACH = 25
LIMIT_SECONDS = 60.0


def main() -> None:
    context = multiprocessing.get_context(sys.argv[1])
    if sys.argv[1] == "forkserver":
        # Its processes are forked after it has imported this.
        context.set_forkserver_preload(["shared"])
    import shared

    shared.show(shared.MAKER, [shared.first])
    # No process takes a task before all of them have started. One alone could take all tasks.
    start = context.Barrier(N_PROCESSES)
    with context.Pool(N_PROCESSES, start.wait, [LIMIT_SECONDS]) as pool:
        tasks = [pool.apply_async(shared.take, [N_EACH]) for _ in range(3 * N_PROCESSES)]
        mine = shared.take(N_EACH)
        taken = [mine, *(task.get(LIMIT_SECONDS) for task in tasks)]
    for process, _, numbers in taken:
        shared.show(process, numbers)
    n_forked = len({process for process, maker, _ in taken if process != maker})
    if n_forked < 2 and sys.argv[1] != "spawn":
        sys.exit(f"vacuous: {n_forked} processes had the memory of another one")


if __name__ == "__main__":
    main()
