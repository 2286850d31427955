package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.equal;
import static odometer.client.Tests.thrown;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;
import odometer.client.OdometerClient.Empty;
import odometer.client.OdometerClient.Flight;
import odometer.client.OdometerClient.Kind;
import odometer.client.OdometerClient.OdometerException;
import odometer.client.OdometerClient.Run;
import odometer.client.OdometerClient.Sequence;
import odometer.client.Tests.Test;

/** Tests takes that end anywhere because the stack is full, in a program that survives this. */
final class StackTest {
    private static final int STACK_BYTES = 200_000;
    /** How far from the end of the stack the takes begin. */
    private static final int N_DEPTHS = 80;

    private final List<Runnable> attempts = new ArrayList<>();
    private int nOverflows;

    private Sequence sequence() {
        attempts.clear();
        OdometerClient client = new OdometerClient(
                OdometerClient.builder(), OdometerClient::now, work -> {
                    // Without this a refill would make a call.
                    if (work instanceof FutureTask
                            || work instanceof CompletableFuture.AsynchronousCompletionTask) {
                        throw new RejectedExecutionException();
                    }
                    attempts.add(work);
                });
        return client.sequence("orders");
    }

    private static void deep(int depth, Runnable work) {
        if (depth > 0) {
            deep(depth - 1, work);
        } else {
            work.run();
        }
    }

    private static boolean fits(int depth) {
        try {
            deep(depth, () -> {});
            return true;
        } catch (StackOverflowError full) {
            return false;
        }
    }

    /** Returns how many calls fit on the stack. They are fewer before the JVM has compiled them. */
    private static int nFitting() {
        int fitting = 0;
        for (int step = 1 << 16; step > 0; step /= 2) {
            fitting += fits(fitting + step) ? step : 0;
        }
        return fitting;
    }

    /** Does work at each depth near the end of a stack, and something after each. */
    private void atTheEnd(Runnable work, Runnable after) throws InterruptedException {
        Throwable[] failure = {null};
        nOverflows = 0;
        Thread thread = new Thread(null, () -> {
            try {
                for (int step = 0; step < N_DEPTHS; step++) {
                    try {
                        deep(nFitting() - step, work);
                    } catch (StackOverflowError full) {
                        nOverflows++;
                    }
                    after.run();
                }
            } catch (Throwable wrong) {
                failure[0] = wrong;
            }
        }, "deep", STACK_BYTES);
        thread.start();
        thread.join();
        if (failure[0] != null) {
            throw new AssertionError("after a full stack", failure[0]);
        }
        check(nOverflows > N_DEPTHS / 10, "vacuous: " + nOverflows + " takes did not fit");
    }

    @Test
    void noTakeGivesANumberThatTheServiceHasNotGiven() throws Exception {
        Sequence orders = sequence();
        // The smaller the runs are, the more often a take goes from one to the next.
        Set<Long> reserved = new HashSet<>();
        List<Run> runs = new ArrayList<>();
        for (long first = 1; first < 10_000; first += 4) {
            runs.add(new Run(first, 1, 2, null));
            reserved.add(first);
            reserved.add(first + 1);
        }
        Set<Long> given = new HashSet<>();
        long[] got = {0};
        Runnable take = () -> got[0] = orders.take();
        try {
            orders.take();
        } catch (OdometerException empty) {
            orders.deliver(orders.flight, Kind.BUFFERED, runs, OdometerClient.now());
        }
        Runnable note = () -> {
            if (got[0] > 0) {
                check(reserved.contains(got[0]), got[0] + " was never reserved");
                check(given.add(got[0]), got[0] + " came twice");
            }
            got[0] = 0;
        };
        for (int round = 0; round < 5; round++) {
            atTheEnd(take, note);
        }
        while (orders.left() > 0) {
            take.run();
            note.run();
        }
    }

    @Test
    void aTakeThatFoundNothingBlocksNoLaterRefill() throws Exception {
        Sequence[] orders = {sequence()};
        Runnable take = () -> {
            try {
                orders[0].take();
            } catch (OdometerException empty) {
                // As is right.
            }
        };
        atTheEnd(take, () -> {
            take.run();
            check(!attempts.isEmpty(), "no refill starts any more");
            orders[0] = sequence();
        });
    }

    @Test
    void aWaiterThatIsGoneBlocksNobody() throws Exception {
        Sequence orders = sequence();
        Runnable next = () -> {
            Thread.currentThread().interrupt();
            try {
                orders.next();
            } catch (OdometerException interrupted) {
                // As is right.
            }
        };
        atTheEnd(next, Thread::interrupted);
        orders.deliver(orders.flight, Kind.BUFFERED, List.of(), OdometerClient.now());
        Caller caller = Caller.waiting(orders::next);
        orders.wanted(orders.flight);
        List<Run> runs = List.of(new Run(1, 1, 1000, null));
        orders.deliver(orders.flight, Kind.BUFFERED, runs, OdometerClient.now());
        long number = Long.parseLong(caller.outcome());
        check(number <= N_DEPTHS + 1, number);
        equal(orders.take(), number + 1);
    }

    @Test
    void aRefillThatEndsAnywhereIsOver() throws Exception {
        Sequence orders = sequence();
        Runnable take = () -> {
            Throwable last = thrown(Empty.class, orders::take).getCause();
            nOverflows += last != null && last.getCause() instanceof StackOverflowError ? 1 : 0;
        };
        take.run();
        Flight[] ended = {null};
        atTheEnd(() -> {
            ended[0] = orders.flight;
            orders.attempt(ended[0]);
        }, () -> {
            boolean hasStarted = Double.isNaN(ended[0].startsAt);
            check(orders.flight != ended[0] || !hasStarted, "no refill starts any more");
            take.run();
        });
    }
}
