package odometer.client;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.stream.LongStream;
import odometer.client.OdometerClient.CallFailed;
import odometer.client.OdometerClient.DeadlinePassed;
import odometer.client.OdometerClient.Empty;
import odometer.client.OdometerClient.Hooks;
import odometer.client.OdometerClient.Kind;
import odometer.client.OdometerClient.Limits;
import odometer.client.OdometerClient.OdometerException;
import odometer.client.OdometerClient.SafeHooks;
import odometer.client.OdometerClient.Threads;
import odometer.client.Stock.Item;
import odometer.client.Stock.Waiter;

/**
 * Gives the numbers of one sequence. {@link OdometerClient#sequence} makes it.
 *
 * <p>A value has 64 bits. An id is the printed form of a value, by the format of the sequence. All
 * methods can be called by several threads, and throw {@link OdometerException} if they fail.
 */
public final class Sequence {
    /** A replica that gives no reply in less time than this may still be healthy. */
    private static final double PATIENT_SECONDS = 1.0;

    final Stock stock;
    private final String name;
    private final Refill.Paths paths;
    private final Service service;
    private final SafeHooks hooks;
    private final Limits limits;
    private final Executor threads;

    Sequence(
            String name,
            String period,
            Kind kind,
            Service service,
            SafeHooks hooks,
            Limits limits,
            Threads threads) {
        this.name = name;
        this.paths = new Refill.Paths(name, period);
        this.service = service;
        this.hooks = hooks;
        this.limits = limits;
        this.threads = threads.ofCallers;
        this.stock = new Refill(name, paths, kind, service, hooks, limits, threads.own).stock;
    }

    /** Returns the name of the sequence. */
    public String name() {
        return name;
    }

    /** Returns how many numbers are in memory. */
    public long left() {
        return stock.left();
    }

    /** Returns how many numbers a second were taken, over the last 10 s. */
    public double rate() {
        return stock.rate();
    }

    /**
     * Returns the next number from memory. Never waits: without one it throws {@link Empty}, and
     * starts a refill.
     *
     * <p>Numbers of strict, period and time-ordered sequences are never in memory, so for these it
     * makes a call.
     */
    public long take() {
        return takeItem().value;
    }

    /** Returns the next id from memory, as {@link #take}. */
    public String takeId() {
        return takeItem().printed();
    }

    /**
     * Returns the next number. Waits for it, at most as long as the client's deadline.
     *
     * <p>Throws {@link DeadlinePassed} then, or {@link CallFailed} if the service refuses.
     */
    public long next() {
        return nextItem().value;
    }

    /** Returns the next id, as {@link #next}. */
    public String nextId() {
        return nextItem().printed();
    }

    /**
     * Returns the next number once it is there, as {@link #next}.
     *
     * <p>What depends on the future runs in one of 32 threads of the client, or in your own. If you
     * cancel the future, its number may become a gap.
     */
    public CompletableFuture<Long> nextAsync() {
        return async(item -> item.value);
    }

    /** Returns the next id once it is there, as {@link #nextAsync}. */
    public CompletableFuture<String> nextIdAsync() {
        return async(Item::printed);
    }

    /**
     * Returns numbers without a gap between them, from memory or else by one call.
     *
     * @param count 1 or more
     */
    public Range range(long count) {
        if (count < 1) {
            throw new IllegalArgumentException("a range has 1 number at least, not " + count);
        }
        Range range = stock.isUnbuffered() ? null : stock.takeRange(count);
        if (range != null) {
            return range;
        }
        double until = Service.now() + limits.deadline;
        return call(paths.unbroken(count), count, until, reply -> {
            Stock.Run run = reply.runs(false).get(0);
            if (run.count() != count) {
                throw CallFailed.invalid(reply.endpoint, "gave a broken range");
            }
            return run.takeRange(count);
        });
    }

    /** Waits until as many numbers are in memory, at most as long as the client's deadline. */
    public void warm(long count) {
        warm(count, limits.deadline);
    }

    /**
     * Waits until as many numbers are in memory. Call it when your program starts.
     *
     * <p>A sequence that cannot be buffered is only looked up.
     */
    public void warm(long count, Duration limit) {
        warm(count, Limits.seconds(limit));
    }

    private void warm(long count, double limit) {
        Waiter waiter = new Waiter(count);
        stock.warm(waiter);
        await(waiter, limit);
    }

    /** Drops all numbers in memory, after a snapshot or a checkpoint was resumed. */
    public void forget() {
        stock.forget("forget");
    }

    private Item takeItem() {
        if (!stock.isUnbuffered()) {
            Item item = stock.take();
            if (item != null) {
                return item;
            }
            if (!stock.isUnbuffered()) {
                throw new Empty("no number of " + name + " is in memory", stock.lastError());
            }
        }
        return callOne(Service.now() + limits.deadline);
    }

    private Item nextItem() {
        double began = Service.now();
        if (!stock.isUnbuffered()) {
            Item item = stock.take();
            if (item == null) {
                Waiter waiter = new Waiter(0);
                item = stock.takeOrWait(waiter);
                item = item != null ? item : awaitItem(waiter);
            }
            if (item != null) {
                return item;
            }
        }
        return callOne(began + limits.deadline);
    }

    private Item awaitItem(Waiter waiter) {
        double began = Service.now();
        try {
            return await(waiter, limits.deadline);
        } finally {
            hooks.waited(Service.now() - began);
        }
    }

    /** Returns the number of a waiter. It is null if the sequence turned out to be unbuffered. */
    private Item await(Waiter waiter, double limit) {
        try {
            waiter.woken.get(Service.nanos(limit), TimeUnit.NANOSECONDS);
        } catch (TimeoutException late) {
            // The waiter may be settled in this moment.
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            if (stock.withdraw(waiter)) {
                throw OdometerException.interrupted(interrupt);
            }
        } catch (ExecutionException never) {
            throw new IllegalStateException(never);
        }
        return result(waiter);
    }

    /** Returns the number of a waiter who waits no longer. */
    private Item result(Waiter waiter) {
        if (stock.withdraw(waiter)) {
            throw late(stock.lastError());
        }
        if (waiter.error != null) {
            throw waiter.error.again();
        }
        return waiter.item;
    }

    private <T> CompletableFuture<T> async(Function<Item, T> form) {
        double began = Service.now();
        boolean isUnbuffered = stock.isUnbuffered();
        CompletableFuture<T> given = new CompletableFuture<>();
        Waiter waiter = new Waiter(0);
        Item item = stock.takeOrWait(waiter);
        if (item != null) {
            given.complete(form.apply(item));
            return given;
        }
        long nanos = Service.nanos(limits.deadline);
        waiter.woken.orTimeout(nanos, TimeUnit.NANOSECONDS).handleAsync((none, late) -> {
            if (!isUnbuffered) {
                hooks.waited(Service.now() - began);
            }
            Item found = result(waiter);
            found = found != null ? found : callOne(began + limits.deadline);
            if (!given.complete(form.apply(found))) {
                hooks.dropped(1, "late");
            }
            return null;
        }, threads).exceptionally(failure -> {
            given.completeExceptionally(failure.getCause());
            return null;
        });
        given.whenComplete((value, failure) -> {
            if (given.isCancelled()) {
                stock.withdraw(waiter);
            }
        });
        return given;
    }

    private DeadlinePassed late(OdometerException lastFailure) {
        String reason = lastFailure == null ? "" : ": " + lastFailure.getMessage();
        return new DeadlinePassed(
                "no number of " + name + " came within the deadline" + reason, lastFailure);
    }

    // Calls without a buffer, in the thread of the caller.

    private Item callOne(double until) {
        return call(paths.one(), 1, until, Reply::one);
    }

    private <T> T call(String path, long count, double until, Function<Reply, T> read) {
        for (int nFailures = 1;; nFailures++) {
            try {
                return callOnce(path, count, until, read);
            } catch (CallFailed failure) {
                if (!failure.isRetryable()) {
                    throw failure;
                }
                boolean isSole = service.endpoints.isSole();
                double pause = Service.pause(nFailures, failure, isSole, Math::random);
                double left = until - Service.now();
                sleep(Math.min(pause, left));
                if (pause >= left) {
                    throw late(failure);
                }
            }
        }
    }

    private <T> T callOnce(String path, long count, double until, Function<Reply, T> read) {
        double began = Service.now();
        double timeout = Math.min(limits.refillTimeout, until - began);
        if (timeout <= 0) {
            throw late(stock.lastError());
        }
        boolean isHasty = timeout < Math.min(limits.refillTimeout, PATIENT_SECONDS);
        Hooks.Span span = hooks.span(name);
        RuntimeException ended = null;
        try {
            Reply reply = service.ask("POST", path, timeout, span.traceparent(), isHasty);
            T given = read.apply(reply);
            hooks.refill(name, reply.endpoint, "ok", Service.now() - began, count);
            return given;
        } catch (CallFailed failure) {
            ended = failure;
            double seconds = Service.now() - began;
            hooks.refill(name, failure.endpoint(), failure.code(), seconds, 0);
            throw failure;
        } catch (RuntimeException failure) {
            ended = failure;
            throw failure;
        } finally {
            hooks.end(span, ended);
        }
    }

    private static void sleep(double seconds) {
        try {
            TimeUnit.NANOSECONDS.sleep(Service.nanos(seconds));
        } catch (InterruptedException interrupt) {
            throw OdometerException.interrupted(interrupt);
        }
    }

    /** Numbers at an even distance, without a gap between them. */
    public static final class Range {
        private final long first;
        private final long step;
        private final long count;

        Range(long first, long step, long count) {
            this.first = first;
            this.step = step;
            this.count = count;
        }

        /** Returns the first number. */
        public long first() {
            return first;
        }

        /** Returns the last number. */
        public long last() {
            return first + step * (count - 1);
        }

        /** Returns the distance between two numbers. */
        public long step() {
            return step;
        }

        /** Returns how many numbers there are. */
        public long count() {
            return count;
        }

        /** Returns all numbers, in their order. */
        public LongStream values() {
            return LongStream.range(0, count).map(index -> first + step * index);
        }

        @Override
        public String toString() {
            return first + " to " + last() + " by " + step;
        }
    }
}
