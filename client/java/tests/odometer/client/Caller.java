package odometer.client;

import static odometer.client.Tests.until;

import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

/** Work in a thread of its own, and what came of it. */
final class Caller extends FutureTask<String> {
    private final Thread thread = new Thread(this);

    private Caller(Callable<?> work) {
        super(() -> {
            try {
                return String.valueOf(work.call());
            } catch (OdometerClient.OdometerException failure) {
                return failure.code();
            }
        });
        thread.setDaemon(true);
    }

    static Caller of(Callable<?> work) {
        Caller caller = new Caller(work);
        caller.thread.start();
        return caller;
    }

    /** Starts work that waits for a number, and returns once it does. */
    static Caller waiting(Callable<?> work) throws Exception {
        Caller caller = of(work);
        until("the caller waits", () -> caller.isDone()
                || caller.thread.getState() == Thread.State.TIMED_WAITING);
        return caller;
    }

    void interrupt() {
        thread.interrupt();
    }

    /** Returns whether the caller waits for a lock. */
    boolean isBlocked() {
        return thread.getState() == Thread.State.BLOCKED;
    }

    /** Returns the number, or the code of the failure. */
    String outcome() throws Exception {
        return get(10, TimeUnit.SECONDS);
    }
}
