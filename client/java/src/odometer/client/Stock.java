package odometer.client;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.OptionalDouble;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.function.Consumer;
import java.util.function.DoubleFunction;
import java.util.function.DoubleSupplier;
import java.util.stream.DoubleStream;
import odometer.client.OdometerClient.CallFailed;
import odometer.client.OdometerClient.OdometerException;
import odometer.client.OdometerClient.SafeHooks;
import odometer.client.Refill.Definition;
import odometer.client.Sequence.Range;

/**
 * Keeps the numbers of one sequence, who waits for them, and the one refill in flight.
 *
 * <p>All of it is under one lock, which is never held during a call or a hook. Times are seconds.
 */
final class Stock {
    /** A refill that nobody waits for ends after so many failures. The next take starts another. */
    private static final int MAX_ATTEMPTS_FOR_NOBODY = 10;

    private final SafeHooks hooks;
    private final double maxAge;
    private final DoubleSupplier clock;
    private final Consumer<Flight> launch;
    private final Size size;
    /** The callers who wait, in the order in which they came. If there are any, nothing is left. */
    private final Deque<Waiter> line = new ArrayDeque<>();
    private final List<Waiter> warming = new ArrayList<>();
    private Buffer buffer = new Buffer();
    private Flight flight;
    private int nFailures;
    private double notBefore;
    private OdometerException lastError;
    private volatile Definition definition;
    /** What is to be done in this order, once the lock is free. */
    private List<Runnable> later = new ArrayList<>();

    /** Makes an empty stock. `launch` starts the thread of a flight. An age may be infinite. */
    Stock(
            SafeHooks hooks,
            long initialSize,
            double maxAge,
            DoubleSupplier clock,
            Consumer<Flight> launch) {
        this.hooks = hooks;
        this.maxAge = maxAge;
        this.clock = clock;
        this.launch = launch;
        this.size = new Size(initialSize);
    }

    /** Returns what the sequence is, or null if that is not known yet. It never changes. */
    Definition definition() {
        return definition;
    }

    /** Returns whether each number must be a call. False while that is not known. */
    boolean isUnbuffered() {
        return definition != null && !definition.isBuffered;
    }

    /** Takes a number, or returns null if none is in memory. Starts a refill if it is time. */
    Item take() {
        return locked(now -> {
            Item item = pop(now);
            launchIfNeeded(now);
            return item;
        });
    }

    /** Takes an unbroken range, or returns null if memory has none. Then nothing else moves. */
    Range takeRange(long count) {
        return locked(now -> {
            Range range = buffer.takeRange(count);
            if (range != null) {
                size.rate.note(now, count);
                launchIfNeeded(now);
            }
            return range;
        });
    }

    /** Takes a number, or puts the waiter into the line and returns null. */
    Item takeOrWait(Waiter waiter) {
        return locked(now -> {
            Item item = pop(now);
            if (item == null && isUnbuffered()) {
                settle(waiter, null, null);
            } else if (item == null) {
                line.add(waiter);
                hurry();
            }
            launchIfNeeded(now);
            return item;
        });
    }

    /** Settles the waiter when its target is in memory, or when there is no buffer. */
    void warm(Waiter waiter) {
        locked(now -> {
            warming.add(waiter);
            if (definition != null) {
                serve(now);
            }
            hurry();
            launchIfNeeded(now);
            return null;
        });
    }

    /**
     * Takes a caller who gave up out of the line. Returns false if the caller is settled already.
     *
     * <p>The refill goes on.
     */
    synchronized boolean withdraw(Waiter waiter) {
        if (waiter.isSettled) {
            return false;
        }
        line.remove(waiter);
        warming.remove(waiter);
        return true;
    }

    /** Drops all numbers, and those of the refill in flight. Callers who wait get new ones. */
    void forget(String cause) {
        locked(now -> {
            drop(buffer.left, cause);
            buffer = new Buffer();
            flight = null;
            if (isAwaited()) {
                launchIfNeeded(now);
            }
            return null;
        });
    }

    /** Returns how many numbers are left. */
    long left() {
        return locked(now -> buffer.left);
    }

    /** Returns how many numbers a second are taken. */
    double rate() {
        return locked(now -> size.rate.perSecond(now));
    }

    /** Returns the failure of the last attempt, or null if it succeeded. */
    synchronized OdometerException lastError() {
        return lastError;
    }

    // For the refill.

    /** Returns how long a new flight waits, because the flight before it failed. */
    double firstPause(Flight it) {
        return locked(now -> {
            if (isAwaited()) {
                hurry();
            }
            return flight == it ? Math.max(0, notBefore - now) : 0;
        });
    }

    /** Returns how many numbers to ask for. 0 ends the flight. */
    long wanted(Flight it) {
        return locked(now -> {
            if (flight != it) {
                return 0L;
            }
            if (!isNeeded(now)) {
                flight = null;
                return 0L;
            }
            long target = warming.stream().mapToLong(waiter -> waiter.target).max().orElse(0);
            long missing = Math.max(target - buffer.left, line.size());
            return Math.max(1, Math.max(size.next(now), missing));
        });
    }

    /** Adds what a flight got. It was asked for at `asked`; the refill began at `began`. */
    void deliver(Flight it, List<Run> runs, double asked, double began) {
        locked(now -> {
            if (flight == it) {
                buffer.add(runs, asked);
                size.noteRefill(now - began);
                succeed(now);
            } else {
                drop(countOf(runs), "forget");
            }
            return null;
        });
    }

    /** Notes what the sequence is, and the numbers that had to be taken to learn it. */
    void learned(Flight it, Definition found, List<Run> runs) {
        locked(now -> {
            definition = found;
            if (flight != it) {
                drop(countOf(runs), "late");
                return null;
            }
            buffer.add(runs, now);
            succeed(now);
            if (!found.isBuffered) {
                // Later these numbers would be out of order, or of another period.
                drop(buffer.left, "late");
                buffer = new Buffer();
            }
            return null;
        });
    }

    /** Notes a failed attempt. Returns how long to wait for the next one, or that none follows. */
    OptionalDouble failed(Flight it, OdometerException error, boolean isSole) {
        return locked(now -> {
            if (flight != it) {
                return OptionalDouble.empty();
            }
            nFailures++;
            lastError = error;
            double pause = Service.pause(nFailures, error, isSole, Math::random);
            notBefore = now + pause;
            if (!isRetryable(error)) {
                failWaiters(error);
            } else if (isAwaited() || nFailures % MAX_ATTEMPTS_FOR_NOBODY != 0) {
                return OptionalDouble.of(pause);
            }
            flight = null;
            return OptionalDouble.empty();
        });
    }

    /** Ends a flight, however it ended, so that the next one can start. The error may be null. */
    void end(Flight it, Throwable error) {
        locked(now -> {
            if (flight == it) {
                flight = null;
                if (error != null) {
                    String what = "a refill failed: " + error;
                    failWaiters(new OdometerException("client", what, error));
                }
            }
            return null;
        });
    }

    /** Does work under the lock, and then what became due by it. */
    private <T> T locked(DoubleFunction<T> work) {
        T result;
        List<Runnable> due = List.of();
        synchronized (this) {
            double now = clock.getAsDouble();
            if (maxAge < Double.POSITIVE_INFINITY) {
                drop(buffer.dropOlder(now - maxAge), "max_age");
            }
            result = work.apply(now);
            if (!later.isEmpty()) {
                due = later;
                later = new ArrayList<>();
            }
        }
        due.forEach(Runnable::run);
        return result;
    }

    // All below are called under the lock.

    private void launchIfNeeded(double now) {
        if (flight == null && isNeeded(now)) {
            Flight started = new Flight();
            flight = started;
            later.add(() -> launch.accept(started));
        }
    }

    private boolean isAwaited() {
        return !line.isEmpty() || !warming.isEmpty();
    }

    private boolean isNeeded(double now) {
        if (definition == null) {
            return true;
        }
        if (!definition.isBuffered) {
            return false;
        }
        if (isAwaited() || !size.hasRefilled) {
            return true;
        }
        if (buffer.blocks.size() > 1) {
            return false;
        }
        return buffer.left == 0 || buffer.left < size.lowWaterMark(now, buffer.currentSize());
    }

    /** Ends the first pause of a flight: callers who wait have a reason to ask again. */
    private void hurry() {
        if (flight != null && lastError != null && !isRetryable(lastError)) {
            flight.hurry.countDown();
        }
    }

    private Item pop(double now) {
        Item item = buffer.take();
        if (item != null) {
            size.rate.note(now, 1);
        }
        return item;
    }

    private void drop(long count, String cause) {
        if (count > 0) {
            later.add(() -> hooks.dropped(count, cause));
        }
    }

    private void succeed(double now) {
        nFailures = 0;
        notBefore = 0;
        lastError = null;
        serve(now);
    }

    private void serve(double now) {
        while (!line.isEmpty() && (buffer.left > 0 || isUnbuffered())) {
            settle(line.remove(), pop(now), null);
        }
        warming.removeIf(waiter -> {
            boolean isServed = isUnbuffered() || buffer.left >= waiter.target;
            if (isServed) {
                settle(waiter, null, null);
            }
            return isServed;
        });
    }

    private void failWaiters(OdometerException error) {
        line.forEach(waiter -> settle(waiter, null, error));
        line.clear();
        warming.forEach(waiter -> settle(waiter, null, error));
        warming.clear();
    }

    private void settle(Waiter waiter, Item item, OdometerException error) {
        waiter.item = item;
        waiter.error = error;
        waiter.isSettled = true;
        later.add(() -> waiter.woken.complete(null));
    }

    private static boolean isRetryable(OdometerException error) {
        return error instanceof CallFailed && ((CallFailed) error).isRetryable();
    }

    static long countOf(Collection<Run> runs) {
        return runs.stream().mapToLong(Run::count).sum();
    }

    /** A refill, from its start to its end. Only the stock's present flight changes the stock. */
    static final class Flight {
        /** Ends the first pause. */
        final CountDownLatch hurry = new CountDownLatch(1);
    }

    /** A caller who waits for a number, or until `target` numbers are in memory. */
    static final class Waiter {
        final long target;
        /** Completes after the waiter is settled. */
        final CompletableFuture<Void> woken = new CompletableFuture<>();
        /** These are set under the stock's lock, once. */
        Item item;
        OdometerException error;
        boolean isSettled;

        Waiter(long target) {
            this.target = target;
        }
    }

    /** A number, and its printed form if the service printed it. */
    static final class Item {
        final long value;
        private final String id;

        Item(long value, String id) {
            this.value = value;
            this.id = id;
        }

        String printed() {
            return id == null ? Long.toString(value) : id;
        }
    }

    /** Numbers at an even distance: first, first + step, and so on. */
    static final class Run {
        private long next;
        private final long step;
        private long count;
        private final Iterator<String> ids;

        /** Makes a run. The ids are those of all its numbers, or null. */
        Run(long first, long step, long count, Iterator<String> ids) {
            this.next = first;
            this.step = step;
            this.count = count;
            this.ids = ids;
        }

        long count() {
            return count;
        }

        /** Takes the first number. There must be one. */
        Item take() {
            Item item = new Item(next, ids == null ? null : ids.next());
            next += step;
            count--;
            return item;
        }

        /** Takes the first numbers. There must be as many. */
        Range takeRange(long wanted) {
            Range range = new Range(next, step, wanted);
            for (long taken = 0; ids != null && taken < wanted; taken++) {
                ids.next();
            }
            next += wanted * step;
            count -= wanted;
            return range;
        }
    }

    /** The numbers of one refill, in the order of its reply. */
    private static final class Block {
        final Deque<Run> runs;
        final long size;
        final double born;

        Block(List<Run> runs, double born) {
            this.runs = new ArrayDeque<>(runs);
            this.size = countOf(runs);
            this.born = born;
        }
    }

    /** The current block, the next one, and what a warm start added. */
    private static final class Buffer {
        final Deque<Block> blocks = new ArrayDeque<>();
        long left;

        /** Returns how many numbers the current block had at first. */
        long currentSize() {
            return blocks.isEmpty() ? 0 : blocks.element().size;
        }

        /** Adds a block. It was asked for at `born`. */
        void add(List<Run> runs, double born) {
            if (!runs.isEmpty()) {
                blocks.add(new Block(runs, born));
                left += blocks.getLast().size;
            }
        }

        Item take() {
            if (left == 0) {
                return null;
            }
            Deque<Run> runs = blocks.element().runs;
            Item item = runs.element().take();
            left--;
            if (runs.element().count() == 0) {
                runs.remove();
                if (runs.isEmpty()) {
                    blocks.remove();
                }
            }
            return item;
        }

        Range takeRange(long count) {
            for (Block block : blocks) {
                for (Run run : block.runs) {
                    if (run.count() >= count) {
                        Range range = run.takeRange(count);
                        left -= count;
                        block.runs.removeIf(it -> it.count() == 0);
                        blocks.removeIf(it -> it.runs.isEmpty());
                        return range;
                    }
                }
            }
            return null;
        }

        long dropOlder(double than) {
            long before = left;
            while (!blocks.isEmpty() && blocks.element().born < than) {
                left -= countOf(blocks.remove().runs);
            }
            return before - left;
        }
    }

    /** Decides how many numbers to ask for, and when. */
    private static final class Size {
        private static final double REFILL_SECONDS = 10.0;
        private static final double LOW_PART = 0.2;
        private static final int N_DURATIONS = 16;

        final Rate rate = new Rate();
        boolean hasRefilled;
        private final long initial;
        private final double[] durations = new double[N_DURATIONS];
        private int at;
        private double slowest;

        Size(long initial) {
            this.initial = initial;
        }

        void noteRefill(double seconds) {
            at = (at + 1) % N_DURATIONS;
            durations[at] = seconds;
            slowest = DoubleStream.of(durations).max().orElse(0);
            hasRefilled = true;
        }

        long next(double now) {
            return hasRefilled ? (long) (rate.perSecond(now) * REFILL_SECONDS) : initial;
        }

        double lowWaterMark(double now, long blockSize) {
            return Math.max(blockSize * LOW_PART, rate.perSecond(now) * 2 * slowest);
        }
    }

    /** Counts how many numbers a second are taken, over the last seconds. */
    private static final class Rate {
        private static final double WINDOW = 10.0;

        private static final class Span {
            final double start;
            long count;

            Span(double start) {
                this.start = start;
            }
        }

        private final Deque<Span> spans = new ArrayDeque<>();
        private long count;

        void note(double now, long taken) {
            if (spans.isEmpty() || now - spans.getLast().start >= WINDOW / 10) {
                spans.add(new Span(now));
            }
            spans.getLast().count += taken;
            count += taken;
            forgetOld(now);
        }

        /** Returns the rate. One number alone says nothing about a rate, so it is 0 then. */
        double perSecond(double now) {
            forgetOld(now);
            if (spans.isEmpty()) {
                return 0;
            }
            return Math.max(0, count - 1) / Math.max(1.0, now - spans.element().start);
        }

        private void forgetOld(double now) {
            while (!spans.isEmpty() && now - spans.element().start > WINDOW) {
                count -= spans.remove().count;
            }
        }
    }
}
