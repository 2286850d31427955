package odometer.client;

import java.io.IOException;
import java.math.BigDecimal;
import java.net.URI;
import java.net.URISyntaxException;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.DoubleSupplier;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.LongStream;
import javax.net.ssl.SSLContext;

/**
 * Takes numbers that never repeat from one installation of Odometer.
 *
 * <p>It fetches ranges of numbers ahead of need and counts in memory, so most numbers cost no call.
 * Make one client for a process, and share it among threads.
 *
 * <pre>{@code
 * OdometerClient client = OdometerClient.builder("http://a:8080", "http://b:8080").build();
 * OdometerClient.Sequence orders = client.sequence("orders");
 * long number = orders.next();
 * }</pre>
 *
 * <p>This file is the whole client, so that you can copy it. It needs only the JDK, 11 or later.
 */
public final class OdometerClient implements AutoCloseable {
    /** The version, which is that of the service. */
    public static final String VERSION = "0.1.0";

    private static final System.Logger LOG = System.getLogger("odometer.client");
    private static final long START = System.nanoTime();
    /** The most numbers that one call of `next` gives. */
    private static final int MAX_COUNT = 10_000;
    private static final Set<String> SIZE_CODES = Set.of("invalid_count", "confirm_needed");
    /** A refill that nobody waits for ends after so many failures. The next take starts another. */
    private static final int MAX_ATTEMPTS_FOR_NOBODY = 10;
    /** The longest pause before an attempt, in seconds: the longest `Retry-After`, and jitter. */
    private static final double MAX_PAUSE = 62.0;
    /** The most hooks that wait to be told. */
    private static final int MAX_UNTOLD = 10_000;
    private static final Pattern TRACEPARENT = Pattern
            .compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}");

    private final Endpoints endpoints;
    private final Supplier<String> token;
    private final SSLContext context;
    private final Hooks hooks;
    private final double deadline;
    private final double refillTimeout;
    private final double maxAge;
    private final long initialSize;
    private final DoubleSupplier clock;
    private final Executor threads;
    private final Map<String, Sequence> sequences = new HashMap<>();
    private final Object connecting = new Object();
    private HttpClient http;
    /** How many calls in a row got no reply. */
    private final AtomicInteger nLost = new AtomicInteger();
    /** Whether the JDK's client may have ended. */
    private volatile boolean isSuspect;
    private final Object telling = new Object();
    private CompletableFuture<Void> told = CompletableFuture.completedFuture(null);
    private int nUntold;
    /** How often the client forgot. A call that began before gives no number afterwards. */
    private volatile int nForgotten;
    private volatile boolean isClosed;

    /** Makes a client. The clock gives seconds that only go forward. */
    OdometerClient(Builder from, DoubleSupplier clock, Executor threads) {
        this.clock = clock;
        this.threads = threads;
        endpoints = new Endpoints(from.endpoints, clock, Math::random);
        token = from.token;
        context = from.context;
        hooks = from.hooks;
        deadline = from.deadline;
        refillTimeout = from.refillTimeout;
        maxAge = from.maxAge;
        initialSize = from.initialSize;
    }

    /** Returns options for a client that calls these addresses, such as `http://host:8080`. */
    public static Builder builder(String... endpoints) {
        return new Builder(endpoints);
    }

    /** Returns a sequence. The same name gives the same one, with the same numbers in memory. */
    public Sequence sequence(String name) {
        return sequence(name, null);
    }

    /**
     * Returns a sequence, as above.
     *
     * @param kind counts only without the right `look`. It may be null.
     * @throws IllegalArgumentException if you said another kind before
     */
    public Sequence sequence(String name, Kind kind) {
        synchronized (sequences) {
            Sequence found = sequences.computeIfAbsent(name, Sequence::new);
            if (kind != null && found.said != null && found.said != kind) {
                throw new IllegalArgumentException(
                        name + " was said to be " + found.said + ", and now " + kind);
            }
            found.said = kind == null ? found.said : kind;
            return found;
        }
    }

    /**
     * Drops all numbers in memory, the connections, and the numbers of calls in flight.
     *
     * <p>Call it after the machine was resumed from a snapshot, or the process from a checkpoint:
     * otherwise two copies give the same numbers.
     *
     * <p>From JDK 21 on, it waits until the connections are closed, for 1 second at most.
     */
    public void forget() {
        drop("forget");
    }

    /** Drops as {@link #forget}. Callers who wait get an error, and so do all from now on. */
    @Override
    public void close() {
        isClosed = true;
        drop("close");
    }

    private void drop(String cause) {
        HttpClient old;
        synchronized (connecting) {
            nForgotten++;
            old = http;
            http = null;
        }
        endpoints.forget();
        List<Sequence> all;
        synchronized (sequences) {
            all = new ArrayList<>(sequences.values());
        }
        all.forEach(sequence -> sequence.drop(cause));
        // An open connection prevents a checkpoint.
        release(old, 1);
    }

    /** Closes the connections of a client, or null. Waits for that, but not above the limit. */
    private void release(HttpClient old, double limit) {
        // Before JDK 21, the garbage collector closes them.
        if (old instanceof AutoCloseable) {
            FutureTask<Void> closing = new FutureTask<>(() -> {
                ((AutoCloseable) old).close();
                return null;
            });
            try {
                threads.execute(closing);
                closing.get(nanos(limit), TimeUnit.NANOSECONDS);
            } catch (InterruptedException interrupt) {
                Thread.currentThread().interrupt();
            } catch (TimeoutException late) {
                // It closes them after the last call in flight.
            } catch (ExecutionException | RuntimeException | OutOfMemoryError noThread) {
                // The garbage collector closes them.
            }
        }
    }

    static double now() {
        return (System.nanoTime() - START) / 1e9;
    }

    private static long nanos(double seconds) {
        return Math.max(1, Math.round(seconds * 1e9));
    }

    private static double seconds(Duration duration) {
        return duration.getSeconds() + duration.getNano() / 1e9;
    }

    /** Returns daemon threads, which end if they are idle. They keep nothing of who starts them. */
    private static Executor ownThreads() {
        ThreadGroup root = Thread.currentThread().getThreadGroup();
        while (root.getParent() != null) {
            root = root.getParent();
        }
        ThreadGroup group = root;
        return Executors.newCachedThreadPool(work -> {
            Thread thread = new Thread(group, work, "odometer-client", 0, false);
            thread.setDaemon(true);
            thread.setPriority(Thread.NORM_PRIORITY);
            thread.setContextClassLoader(OdometerClient.class.getClassLoader());
            return thread;
        });
    }

    private interface Work {
        void run() throws Exception;
    }

    private static void survive(Work work) {
        try {
            work.run();
        } catch (Throwable failure) {
            LOG.log(System.Logger.Level.WARNING, "a hook failed", failure);
        }
    }

    /**
     * Tells a hook in another thread, one after the other: it may be slow, or take numbers. If too
     * many wait, this one is not told.
     */
    private void tell(Work hook) {
        synchronized (telling) {
            nUntold = told.isDone() ? 0 : nUntold;
            if (nUntold == MAX_UNTOLD) {
                return;
            }
            nUntold++;
            told = told.handleAsync((none, noThread) -> {
                synchronized (telling) {
                    nUntold--;
                }
                survive(hook);
                return null;
            }, threads);
        }
    }

    private void tellDropped(long count, String cause) {
        if (count > 0) {
            tell(() -> hooks.dropped(count, cause));
        }
    }

    private static OdometerException closed() {
        return new OdometerException("client", "the client is closed", null);
    }

    /** Says whether a sequence may be buffered. */
    public enum Kind {
        /** Counts upwards, without periods and in no strict order. */
        BUFFERED,
        /** Is strict, has periods, or is time-ordered: each number is a call. */
        UNBUFFERED
    }

    /**
     * Tells your program what the client does, one thing after the other.
     *
     * <p>All but spans are told in a thread of the client, so that they delay no caller and no
     * refill. If 10,000 of them wait because one is slow, further ones are not told.
     */
    public interface Hooks {
        /**
         * Is told that one call for numbers ended.
         *
         * @param outcome `ok`, `resized` (the size was refused, and a smaller one was given),
         *     `timeout`, `connection`, or the code of the service
         * @param count how many numbers it brought
         */
        default void refill(
                String sequence, String endpoint, String outcome, double seconds, long count) {}

        /** Is told that a caller found nothing in memory, and waited this long. */
        default void waited(double seconds) {}

        /** Is told of gaps: by `max_age`, `forget`, `close`, or `late` (nobody waited any more). */
        default void dropped(long count, String cause) {}

        /**
         * Opens a span `odometer.refill` of your tracer.
         *
         * <p>By default each refill has a trace of its own, which is not sampled.
         */
        default Span span(String sequence) {
            ThreadLocalRandom random = ThreadLocalRandom.current();
            String header = String.format("00-%016x%016x-%016x-00",
                    random.nextLong(), random.nextLong() | 1, random.nextLong() | 1);
            return () -> header;
        }

        /** Surrounds one refill. */
        interface Span {
            /** Returns the header `traceparent` of the span (W3C Trace Context). */
            String traceparent();

            /** Ends the span. The failure is null if the refill succeeded. */
            default void end(RuntimeException failure) {}
        }
    }

    /** Says why there is no number: what happened, and a word for it. */
    public static class OdometerException extends RuntimeException {
        private static final long serialVersionUID = 1L;
        /** The statuses after which a call is tried again. 0: there was no reply. */
        private static final List<Integer> RETRYABLE = List.of(0, 429, 502, 503, 504);

        private final String code;
        private final String endpoint;
        private final int status;
        /** How many numbers the call could have now, or 0. */
        private final long limit;
        /** The seconds after which the service wants to be asked again, or 0. */
        private final long retryAfter;

        OdometerException(String code, String message, Throwable cause) {
            this(code, message, cause, "", -1, 0, 0);
        }

        OdometerException(String code, String message, Throwable cause, String endpoint, int status,
                long limit, long retryAfter) {
            super(message, cause);
            this.code = code;
            this.endpoint = endpoint;
            this.status = status;
            this.limit = limit;
            this.retryAfter = retryAfter;
        }

        /** Returns the failure of a call without a reply. Its numbers are a gap. */
        static OdometerException unreachable(String endpoint, Throwable cause) {
            String what = endpoint + " gave no reply" + (isLate(cause) ? " in time" : ": " + cause);
            return new OdometerException("unreachable", what, cause, endpoint, 0, 0, 0);
        }

        static OdometerException interrupted(String endpoint, InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            String what = "the thread was interrupted";
            return new OdometerException("interrupted", what, interrupt, endpoint, -1, 0, 0);
        }

        /**
         * Returns a word for programs: `empty`, `deadline`, `unreachable`, `interrupted`, `client`
         * (the client is closed, or has a defect), `invalid_reply`, `http_404` for a refusal
         * without a code, or the code of the service.
         */
        public final String code() {
            return code;
        }

        /** Returns what hooks are told. */
        final String outcome() {
            return status != 0 ? code : isLate(getCause()) ? "timeout" : "connection";
        }

        final boolean isRetryable() {
            return RETRYABLE.contains(status);
        }

        /** Says whether this is no answer about a sequence: the address may be a wrong one. */
        final boolean isForeign() {
            return code.equals("invalid_reply") || code.equals("route_not_found")
                    || code.startsWith("http_");
        }

        /** Returns the same with more words, and with the stack of this thread. */
        final OdometerException with(String advice) {
            return new OdometerException(
                    code, getMessage() + advice, this, endpoint, status, limit, retryAfter);
        }

        private static boolean isLate(Throwable cause) {
            return cause instanceof TimeoutException || cause instanceof HttpTimeoutException;
        }
    }

    /** Says that no number is in memory. A refill has started. The cause is its last failure. */
    public static final class Empty extends OdometerException {
        private static final long serialVersionUID = 1L;

        Empty(String message, Throwable lastFailure) {
            super("empty", message, lastFailure);
        }
    }

    /** The options of a client. */
    public static final class Builder {
        private final List<String> endpoints = new ArrayList<>();
        private Supplier<String> token = () -> null;
        private SSLContext context;
        private double deadline = 2;
        private double refillTimeout = 7;
        private double maxAge = Double.POSITIVE_INFINITY;
        private long initialSize = 100;
        private Hooks hooks = new Hooks() {};

        Builder(String... urls) {
            for (String url : urls.length > 0 ? urls : new String[] {"http://127.0.0.1:8080"}) {
                if (!isAddress(url)) {
                    // It may have a password, so no message and no cause shows it.
                    throw new IllegalArgumentException("endpoint " + (endpoints.size() + 1)
                            + " is no address such as http://host:8080");
                }
                endpoints.add(url.replaceAll("/+$", ""));
            }
        }

        /** Sends this bearer token. */
        public Builder token(String given) {
            String secret = checkedToken(given);
            token = () -> secret;
            return this;
        }

        /** Reads the bearer token from a file at each call. If it cannot, the last one counts. */
        public Builder tokenFile(Path file) {
            AtomicReference<String> last = new AtomicReference<>();
            try {
                last.set(checkedToken(Files.readString(file)));
            } catch (IOException error) {
                throw new IllegalArgumentException("the token in " + file + ": " + error, error);
            }
            token = () -> {
                try {
                    last.set(checkedToken(Files.readString(file)));
                } catch (IOException | IllegalArgumentException notNow) {
                    // It is being replaced.
                }
                return last.get();
            };
            return this;
        }

        /** Uses this context for `https`. By default it is that of the JVM. */
        public Builder sslContext(SSLContext given) {
            context = given;
            return this;
        }

        /** Bounds how long a caller waits who finds nothing in memory. 2 s by default. */
        public Builder deadline(Duration limit) {
            deadline = positive(limit);
            return this;
        }

        /** Bounds one call. 7 s by default, because the service holds a call for up to 5 s. */
        public Builder refillTimeout(Duration limit) {
            refillTimeout = positive(limit);
            return this;
        }

        /** Drops numbers that were asked for longer ago. Off by default. */
        public Builder maxAge(Duration limit) {
            maxAge = positive(limit);
            return this;
        }

        /** Sets how many numbers the first refill asks for. 100 by default. */
        public Builder initialSize(long size) {
            if (size < 1) {
                throw new IllegalArgumentException("a first size is 1 at least, not " + size);
            }
            initialSize = size;
            return this;
        }

        /** Tells these hooks what the client does. */
        public Builder hooks(Hooks given) {
            hooks = given;
            return this;
        }

        /** Makes the client. It makes no call before its first number. */
        public OdometerClient build() {
            return new OdometerClient(this, OdometerClient::now, ownThreads());
        }

        private static double positive(Duration limit) {
            if (limit.isZero() || limit.isNegative()) {
                throw new IllegalArgumentException("a time is above zero, not " + limit);
            }
            return seconds(limit);
        }

        private static boolean isAddress(String url) {
            try {
                URI uri = new URI(url);
                return String.valueOf(uri.getScheme()).matches("(?i)https?")
                        && uri.getHost() != null && uri.getRawUserInfo() == null
                        && uri.getPort() != 0 && uri.getPort() < 65536
                        && uri.getRawQuery() == null && uri.getRawFragment() == null;
            } catch (URISyntaxException error) {
                return false;
            }
        }

        /** Returns the token without space around it. No message shows it. */
        private static String checkedToken(String given) {
            String secret = given.strip();
            if (secret.isEmpty()) {
                throw new IllegalArgumentException("the token is empty");
            }
            if (!secret.chars().allMatch(it -> it > ' ' && it < 127)) {
                throw new IllegalArgumentException("the token has characters that no header has");
            }
            return secret;
        }
    }

    /**
     * Gives the numbers of one sequence. {@link OdometerClient#sequence} makes it.
     *
     * <p>A value has 64 bits. An id is the printed form of a value, by the format of the sequence.
     * All methods can be called by several threads. If there is no number, they throw
     * {@link OdometerException}.
     */
    public final class Sequence {
        private final String name;
        private final String path;
        private volatile Kind said;
        /** What the sequence is, or null if that is not known yet. If unbuffered, it stays so. */
        private volatile Kind kind;
        /** Whether an id is the bare value. If not, or if that is not known, the service prints. */
        private volatile boolean printsValues;
        private volatile boolean mayReserve = true;
        private volatile OdometerException lastError;

        // All below is under the lock of this object, which is never held during a call or a hook.
        // An error of the JVM, such as a full stack, may end any method at any call that it makes.
        // Whatever it leaves behind, no number is given twice, and the next caller gets one.

        /** The first run that may have numbers, and the last one. */
        private Run head;
        private Run last;
        /** About how many numbers are in memory. */
        private long left;
        /** The callers who wait, in their order. If there are any, no number is in memory. */
        private final Set<Waiter> line = new LinkedHashSet<>();
        private final Set<Waiter> warming = new LinkedHashSet<>();
        Flight flight;
        private int nFailures;
        private double notBefore;
        private Rate rate;
        /** How often the numbers were dropped. */
        private volatile int nDrops;
        /** How long the last refills took, and the slowest of them, in seconds. */
        private final double[] durations = new double[16];
        private double slowest;
        private int nRefills;

        private Sequence(String name) {
            this.name = name;
            this.path = pathOf(name);
            clear("");
        }

        /** Returns how many numbers are in memory. */
        public synchronized long left() {
            tick();
            long count = 0;
            for (Run run = head; run != null; run = run.after) {
                count += run.count - run.taken;
            }
            return count;
        }

        /** Returns how many numbers a second were taken, over the last 10 s. */
        public synchronized double rate() {
            return rate.perSecond(clock.getAsDouble());
        }

        /**
         * Returns the next number from memory. Never waits: without one it throws {@link Empty},
         * and starts a refill.
         *
         * <p>Numbers of strict, period and time-ordered sequences are never in memory, so for these
         * it makes a call.
         *
         * @throws Empty if no number is in memory
         */
        public long take() {
            return taken().value;
        }

        /** Returns the next id from memory, as {@link #take}. */
        public String takeId() {
            return taken().printed();
        }

        /**
         * Returns the next number. Waits for it, at most as long as the client's deadline.
         *
         * @throws OdometerException if there is none until then, or if the service refuses it
         */
        public long next() {
            return awaited().value;
        }

        /** Returns the next id, as {@link #next}. */
        public String nextId() {
            return awaited().printed();
        }

        /** Returns the next number of a period. Each one is a call. */
        public long nextIn(String period) {
            return callOne("?period=" + encoded(period), now() + deadline).value;
        }

        /** Returns the next id of a period, as {@link #nextIn}. */
        public String nextIdIn(String period) {
            return callOne("?period=" + encoded(period), now() + deadline).printed();
        }

        /**
         * Returns one or more numbers without a gap between them. They are one call.
         *
         * @throws IllegalArgumentException if the count is below 1
         * @throws OdometerException as {@link #next}
         */
        public LongStream range(long count) {
            if (count < 1) {
                throw new IllegalArgumentException("a range has 1 number at least, not " + count);
            }
            String target = count > MAX_COUNT ? "/blocks?size=" + count
                    : "/next?count=" + count + "&contiguous=true&ids=false";
            Run run = call(target, count, now() + deadline, reply -> reply.range(count));
            return LongStream.range(0, count).map(at -> run.first + run.step * at);
        }

        /**
         * Waits until as many numbers are in memory. Call it when your program starts.
         *
         * <p>A sequence that cannot be buffered is only looked up.
         *
         * @throws OdometerException if they are not in memory after the limit
         */
        public void warm(long count, Duration limit) {
            Waiter waiter = new Waiter(count);
            synchronized (this) {
                double now = tick();
                warming.add(waiter);
                serve(now);
                refillIfNeeded(now);
            }
            await(waiter, now() + seconds(limit));
        }

        private Item taken() {
            Item item = kind == Kind.UNBUFFERED ? null : popped(null);
            if (item == null && kind != Kind.UNBUFFERED) {
                throw isClosed ? closed()
                        : new Empty("no number of " + name + " is in memory", lastError);
            }
            return item != null ? item : callOne("", now() + deadline);
        }

        private Item awaited() {
            double began = now();
            Item item = null;
            if (kind != Kind.UNBUFFERED) {
                Waiter waiter = new Waiter(0);
                item = popped(waiter);
                if (item == null) {
                    try {
                        item = await(waiter, began + deadline);
                    } finally {
                        double seconds = now() - began;
                        tell(() -> hooks.waited(seconds));
                    }
                }
            }
            return item != null ? item : callOne("", began + deadline);
        }

        /**
         * Returns a number from memory, or null. Starts a refill if it is time.
         *
         * @param waiter stands in line if there is no number. It may be null.
         */
        private synchronized Item popped(Waiter waiter) {
            double now = tick();
            Item item = pop(now);
            if (item == null && waiter != null) {
                line.add(waiter);
                serve(now);
            }
            refillIfNeeded(now);
            return item;
        }

        /** Returns the number of a waiter. It is null if there is none to wait for. */
        private Item await(Waiter waiter, double until) {
            OdometerException gaveUp = null;
            try {
                if (!waiter.end.await(nanos(until - now()), TimeUnit.NANOSECONDS)) {
                    gaveUp = late(lastError);
                }
            } catch (InterruptedException interrupt) {
                gaveUp = OdometerException.interrupted("", interrupt);
            }
            if (gaveUp != null) {
                synchronized (this) {
                    line.remove(waiter);
                    warming.remove(waiter);
                    // It may have been served in this moment.
                    if (waiter.end.getCount() > 0 || waiter.failure != null) {
                        throw gaveUp;
                    }
                }
            }
            if (waiter.failure != null) {
                throw waiter.failure.with("");
            }
            Item item = waiter.item;
            if (item == null || item.nDrops == nDrops) {
                return item;
            }
            // It was dropped in this moment: a copy of this process may have got it, too.
            tellDropped(1, isClosed ? "close" : "forget");
            Waiter again = new Waiter(0);
            Item fresh = popped(again);
            return fresh != null ? fresh : await(again, until);
        }

        private OdometerException late(OdometerException failure) {
            String reason = failure == null ? "" : ": " + failure.getMessage();
            String what = "no number of " + name + " came within the deadline" + reason;
            return new OdometerException("deadline", what, failure);
        }

        // Calls without a buffer, in the thread of the caller.

        private Item callOne(String query, double until) {
            return call("/next" + query, 1, until, Reply::one);
        }

        /** Makes calls in a row until one succeeds, or until the deadline. */
        private <T> T call(String target, long count, double until, Function<Reply, T> read) {
            for (int n = 1;; n++) {
                if (isClosed) {
                    throw closed();
                }
                double rest = until - now();
                if (rest <= 0) {
                    throw late(lastError);
                }
                int generation = nForgotten;
                Report report = new Report();
                try {
                    double timeout = Math.min(refillTimeout, rest);
                    Reply reply = ask("POST", path + target, timeout, report.traceparent);
                    T given = read.apply(reply);
                    report.end(reply.from.url, "ok", count, null);
                    if (generation == nForgotten) {
                        return given;
                    }
                    // A copy of this process may have got the same reply.
                    tellDropped(count, isClosed ? "close" : "forget");
                } catch (OdometerException failure) {
                    report.end(failure.endpoint, failure.outcome(), 0, failure);
                    if (!failure.isRetryable()) {
                        throw failure;
                    }
                    sleep(Math.min(endpoints.pause(n, failure), until - now()));
                    if (now() >= until) {
                        throw late(failure);
                    }
                }
            }
        }

        // Under the lock.

        /** Returns the time. Drops the numbers that are above their age by now. */
        private double tick() {
            double now = clock.getAsDouble();
            for (; head != null && now - head.born > maxAge; head = head.after) {
                tellDropped(head.count - head.taken, "max_age");
                left -= head.count - head.taken;
            }
            return now;
        }

        /** Gives the next number, or null. It counts as taken before anything can fail. */
        private Item pop(double now) {
            for (Run run = head; run != null; run = run.after) {
                head = run;
                long at = run.taken;
                if (at < run.count) {
                    run.taken = at + 1;
                    left--;
                    rate.note(now);
                    Object id = run.ids == null ? null : run.ids.get((int) at);
                    return new Item(run.first + run.step * at, id, nDrops);
                }
            }
            head = null;
            left = 0;
            return null;
        }

        private void add(List<Run> runs, double born) {
            long size = countOf(runs);
            for (Run run : runs) {
                run.block = runs;
                run.blockSize = size;
                run.born = born;
                if (head == null) {
                    head = run;
                } else {
                    last.after = run;
                }
                last = run;
            }
            left += size;
        }

        /** Drops all numbers and all that was measured. */
        private void clear(String cause) {
            long dropped = left();
            head = null;
            left = 0;
            nRefills = 0;
            Arrays.fill(durations, 0);
            slowest = 0;
            rate = new Rate();
            succeed();
            tellDropped(dropped, cause);
        }

        private void succeed() {
            nFailures = 0;
            notBefore = Double.NEGATIVE_INFINITY;
            lastError = null;
        }

        private synchronized void drop(String cause) {
            nDrops++;
            clear(cause);
            if (flight != null) {
                flight.cause = cause;
                flight = null;
            }
            if (isAwaited()) {
                refillIfNeeded(clock.getAsDouble());
            }
        }

        private boolean isAwaited() {
            return !line.isEmpty() || !warming.isEmpty();
        }

        private boolean isNeeded(double now) {
            if (kind == Kind.UNBUFFERED) {
                return false;
            }
            if (kind == null || isAwaited() || nRefills == 0 || head == null) {
                return true;
            }
            double mark = Math.max(head.blockSize * 0.2, rate.perSecond(now) * 2 * slowest);
            // There are two blocks at most.
            return left < mark && head.block == last.block;
        }

        /** Starts a refill if it is time, and if none is in flight. */
        private void refillIfNeeded(double now) {
            if (isClosed) {
                fail(closed());
                return;
            }
            // After a refusal, a caller who waits has a reason to ask again: the cause may be gone.
            boolean isHurried = isAwaited() && lastError != null && !lastError.isRetryable();
            boolean isReplaced = flight != null
                    && (now > flight.lostAt || isHurried && now < flight.startsAt);
            if ((flight == null || isReplaced) && isNeeded(now)) {
                launch(null, isHurried ? 0 : notBefore - now, now);
            }
        }

        /** Starts an attempt after a failed one, or null, and after a pause in seconds. */
        private void launch(Flight failed, double pause, double now) {
            double bounded = Math.max(0, Math.min(MAX_PAUSE, pause));
            Flight it = new Flight(failed == null ? now + bounded : failed.began, now + bounded);
            Executor executor = bounded == 0 ? threads : CompletableFuture.delayedExecutor(
                    nanos(bounded), TimeUnit.NANOSECONDS, threads);
            flight = null;
            try {
                executor.execute(() -> attempt(it));
                // Noted last: if there is no thread, no attempt is in flight.
                flight = it;
            } catch (RuntimeException | OutOfMemoryError noThread) {
                fail(new OdometerException("client", "no thread for a refill", noThread));
            }
        }

        /** Gives numbers to those who wait. If each number is a call, nobody waits any more. */
        private void serve(double now) {
            for (Iterator<Waiter> all = line.iterator(); all.hasNext();) {
                Waiter waiter = all.next();
                Item item = pop(now);
                if (item == null && kind != Kind.UNBUFFERED) {
                    break;
                }
                all.remove();
                waiter.complete(item);
            }
            warming.removeIf(waiter -> {
                boolean isWarm = kind == Kind.UNBUFFERED || kind != null && left() >= waiter.target;
                if (isWarm) {
                    waiter.complete(null);
                }
                return isWarm;
            });
        }

        private void fail(OdometerException error) {
            for (Set<Waiter> waiters : List.of(line, warming)) {
                waiters.forEach(waiter -> waiter.fail(error));
                waiters.clear();
            }
        }

        // The refill. Only the flight that the sequence knows changes what is in memory.

        /** Makes one attempt, and starts the next one if it is needed. */
        void attempt(Flight it) {
            try {
                long size = wanted(it);
                if (size > 0 && kind == null) {
                    learn(it);
                } else if (size > 0) {
                    fetch(it, size);
                }
            } catch (OdometerException error) {
                failed(it, error);
            } catch (Throwable error) {
                String what = "a refill of " + name + " failed";
                failed(it, new OdometerException("client", what, error));
                LOG.log(System.Logger.Level.ERROR, what, error);
            } finally {
                end(it);
            }
        }

        private synchronized boolean end(Flight it) {
            boolean isPresent = flight == it;
            flight = isPresent ? null : flight;
            return isPresent;
        }

        /** Returns how many numbers to ask for. If they are 0, the flight ends. */
        synchronized long wanted(Flight it) {
            double now = tick();
            it.startsAt = Double.NaN;
            // A refill makes fewer than ten calls. If it takes longer, its thread hangs elsewhere.
            it.lostAt = now + 10 * refillTimeout;
            if (flight != it || !isNeeded(now)) {
                return 0;
            }
            long target = warming.stream().mapToLong(waiter -> waiter.target).max().orElse(0);
            long size = nRefills == 0 ? initialSize : (long) (rate.perSecond(now) * 10);
            return Math.max(Math.max(1, size), Math.max(target - left(), line.size()));
        }

        /** Adds what a flight got, which was asked for at a time. */
        synchronized void deliver(Flight it, Kind found, List<Run> runs, double asked) {
            double now = clock.getAsDouble();
            boolean isRefill = kind != null;
            kind = kind == Kind.UNBUFFERED ? kind : found;
            if (end(it)) {
                add(runs, asked);
                succeed();
                if (isRefill) {
                    durations[nRefills++ % durations.length] = now - it.began;
                    slowest = Arrays.stream(durations).max().orElse(0);
                }
            } else {
                tellDropped(countOf(runs), it.cause);
            }
            serve(now);
            if (kind == Kind.UNBUFFERED) {
                // Kept for later, the rest would be out of order, or of another period.
                clear("late");
            }
            refillIfNeeded(now);
        }

        /** Notes a failed attempt, and tries again later, unless the failure is final. */
        synchronized void failed(Flight it, OdometerException error) {
            if (!end(it)) {
                return;
            }
            double now = clock.getAsDouble();
            double pause = endpoints.pause(++nFailures, error);
            notBefore = now + pause;
            lastError = error;
            if (!error.isRetryable()) {
                fail(error);
            } else if (isAwaited() || nFailures % MAX_ATTEMPTS_FOR_NOBODY != 0) {
                launch(it, pause, now);
            }
        }

        /** Reads the definition. A name that was never seen is created by its first number. */
        private void learn(Flight it) {
            double asked = clock.getAsDouble();
            double began = now();
            List<Run> first = new ArrayList<>();
            try {
                Map<?, ?> definition = definition(first);
                printsValues = "{value}".equals(definition.get("format"));
                boolean isBuffered = "block".equals(definition.get("kind"))
                        && "relaxed".equals(definition.get("order"))
                        && "none".equals(definition.get("period"));
                deliver(it, isBuffered ? Kind.BUFFERED : Kind.UNBUFFERED, first, asked);
            } catch (OdometerException refusal) {
                if (refusal.status == 403 && said != null) {
                    deliver(it, said, first, asked);
                    return;
                }
                double seconds = now() - began;
                tell(() -> hooks.refill(name, refusal.endpoint, refusal.outcome(), seconds, 0));
                tellDropped(countOf(first), "late");
                throw refusal.status != 403 ? refusal : refusal.with(" Without the right `look`, "
                        + "say the kind: Kind.BUFFERED, or Kind.UNBUFFERED for strict, period and "
                        + "time-ordered sequences.");
            }
        }

        /** Returns the definition. Adds the number that had to be taken first, if there is one. */
        private Map<?, ?> definition(List<Run> first) {
            try {
                return ask("GET", path, refillTimeout, null).get("definition", Map.class);
            } catch (OdometerException refusal) {
                if (!refusal.code.equals("sequence_not_found")) {
                    throw refusal;
                }
            }
            Report report = new Report();
            String owner;
            try {
                Reply one = ask("POST", path + "/next?count=1", refillTimeout, report.traceparent);
                // A template may share another sequence's numbers: then that one is defined.
                owner = one.get("sequence", String.class);
                first.addAll(one.runs(true));
                report.end(one.from.url, "ok", countOf(first), null);
            } catch (OdometerException failure) {
                report.endSpan(failure);
                throw failure;
            }
            return ask("GET", pathOf(owner), refillTimeout, null).get("definition", Map.class);
        }

        /** Gets numbers with one call, or with another one if the size was refused. */
        private void fetch(Flight it, long wanted) {
            double asked = clock.getAsDouble();
            boolean withIds = !printsValues;
            // After a failure the database may be away, and then `next` still has numbers.
            boolean isBatch = withIds || lastError != null || !mayReserve;
            long size = isBatch ? Math.min(wanted, MAX_COUNT) : wanted;
            Set<String> codes = new HashSet<>();
            Report report = new Report();
            while (true) {
                String target = size > MAX_COUNT ? "/blocks?size=" + size
                        : "/next?count=" + size + (withIds ? "" : "&ids=false");
                try {
                    Reply reply = ask("POST", path + target, refillTimeout, report.traceparent);
                    List<Run> runs = reply.runs(withIds);
                    String outcome = codes.isEmpty() ? "ok" : "resized";
                    // Numbers of a period cannot be kept, whatever the program said.
                    Kind found = reply.body.get("period") == null ? kind : Kind.UNBUFFERED;
                    deliver(it, found, runs, asked);
                    report.end(reply.from.url, outcome, countOf(runs), null);
                    return;
                } catch (OdometerException failure) {
                    long less = smaller(size, failure);
                    // Each reason to ask for less counts once.
                    if (less == 0 || !codes.add(failure.code)) {
                        report.end(failure.endpoint, failure.outcome(), 0, failure);
                        throw failure;
                    }
                    size = less;
                }
            }
        }

        /** Returns a smaller size that may succeed, or 0. */
        private long smaller(long size, OdometerException failure) {
            if (failure.status == 403 && size > MAX_COUNT) {
                mayReserve = false;
                return MAX_COUNT;
            }
            if (failure.status == 429 || SIZE_CODES.contains(failure.code)) {
                return failure.limit < size ? failure.limit : 0;
            }
            // The last numbers are issued one at a time.
            return failure.code.equals("sequence_exhausted") && size > 1 ? 1 : 0;
        }

        /** One call for numbers, as the hooks see it. */
        private final class Report {
            private final double began = now();
            private Hooks.Span span;
            private String traceparent = "";

            Report() {
                survive(() -> {
                    span = hooks.span(name);
                    traceparent = span.traceparent();
                });
                if (traceparent == null || !TRACEPARENT.matcher(traceparent).matches()) {
                    traceparent = new Hooks() {}.span(name).traceparent();
                }
            }

            /** Tells that the call ended. The failure may be null. */
            void end(String endpoint, String outcome, long count, OdometerException failure) {
                double seconds = now() - began;
                tell(() -> hooks.refill(name, endpoint, outcome, seconds, count));
                endSpan(failure);
            }

            void endSpan(OdometerException failure) {
                if (span != null) {
                    tell(() -> span.end(failure));
                }
            }
        }
    }

    /** An attempt of a refill. Times are in seconds. */
    static final class Flight {
        /** When the first attempt of the refill was to start. */
        private final double began;
        /** When this one is to start, or NaN once it has. */
        double startsAt;
        /** After this time its thread is lost, and another flight may take its place. */
        private double lostAt;
        /** Why its numbers are dropped, once it is not the present flight any more. */
        private String cause = "late";

        Flight(double began, double startsAt) {
            this.began = began;
            this.startsAt = startsAt;
            // A thread that has not started after a second may never do so.
            lostAt = startsAt + 1;
        }
    }

    /** A caller who waits for a number, or until `target` numbers are in memory. */
    private static final class Waiter {
        final long target;
        /** Who waits for a CompletableFuture may run other tasks of the program, but not here. */
        private final CountDownLatch end = new CountDownLatch(1);
        private Item item;
        private OdometerException failure;

        Waiter(long target) {
            this.target = target;
        }

        void complete(Item given) {
            item = given;
            end.countDown();
        }

        void fail(OdometerException error) {
            failure = error;
            end.countDown();
        }
    }

    /** A number, and its printed form if the service printed it. */
    private static final class Item {
        final long value;
        private final Object id;
        /** How often the numbers were dropped before it was taken from memory. */
        private final int nDrops;

        Item(long value, Object id, int nDrops) {
            this.value = value;
            this.id = id;
            this.nDrops = nDrops;
        }

        String printed() {
            return id == null ? Long.toString(value) : id.toString();
        }
    }

    /** Numbers at an even distance, of one block. Only `taken` says which ones were given. */
    static final class Run {
        final long first;
        final long step;
        final long count;
        /** The ids of all its numbers, or null. */
        final List<?> ids;
        private long taken;
        /** Which block it belongs to, how many numbers that had, and when they were asked for. */
        private Object block;
        private long blockSize;
        private double born;
        private Run after;

        Run(long first, long step, long count, List<?> ids) {
            this.first = first;
            this.step = step;
            this.count = count;
            this.ids = ids;
        }
    }

    private static long countOf(List<Run> runs) {
        return runs.stream().mapToLong(run -> run.count).sum();
    }

    /** Counts how many numbers a second are taken, over the last 10 s. */
    private static final class Rate {
        private final long[] counts = new long[10];
        private final double[] starts = new double[10];
        private int at;

        void note(double now) {
            if (counts[at] == 0 || now - starts[at] >= 1) {
                at = (at + 1) % counts.length;
                starts[at] = now;
                counts[at] = 0;
            }
            counts[at]++;
        }

        /** Returns the rate. One number alone says nothing about a rate, so it is 0 then. */
        double perSecond(double now) {
            long sum = 0;
            double begin = now;
            for (int second = 0; second < counts.length; second++) {
                if (counts[second] > 0 && now - starts[second] <= 10) {
                    sum += counts[second];
                    begin = Math.min(begin, starts[second]);
                }
            }
            return Math.max(0, sum - 1) / Math.max(1.0, now - begin);
        }
    }

    private static void sleep(double seconds) {
        try {
            TimeUnit.NANOSECONDS.sleep(nanos(seconds));
        } catch (InterruptedException interrupt) {
            throw OdometerException.interrupted("", interrupt);
        }
    }

    private static String pathOf(String name) {
        return "/v1/sequences/" + encoded(name).replace("%3A", ":");
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    /** Makes one call at one endpoint, within the timeout in seconds. It retries nothing. */
    private Reply ask(String method, String path, double timeout, String traceparent) {
        Endpoints.Health called = endpoints.choose();
        double began = clock.getAsDouble();
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(called.url + path))
                .method(method, HttpRequest.BodyPublishers.noBody())
                .header("Accept", "application/json")
                .header("User-Agent", "odometer-client-java/" + VERSION);
        String secret = token.get();
        if (secret != null) {
            request.header("Authorization", "Bearer " + secret);
        }
        if (traceparent != null) {
            request.header("traceparent", traceparent);
        }
        HttpResponse<byte[]> response;
        try {
            response = sent(request, called.url, timeout);
        } catch (OdometerException failure) {
            double patience = Math.min(1, refillTimeout);
            if (timeout < patience && failure.outcome().equals("timeout")) {
                endpoints.hurried(called, began, patience);
            } else if (failure.status == 0) {
                endpoints.failed(called, began);
            }
            // The JDK's client ends for good if it once gets no thread or no memory. Nothing tells
            // this apart from replicas that are away. So it is replaced after 8, 16, 32 and 64
            // calls in a row without a reply, and then after each 64 more.
            int lost = failure.status == 0 ? nLost.incrementAndGet() : 0;
            if (lost >= 8 && (Integer.bitCount(lost) == 1 || lost % 64 == 0)) {
                isSuspect = true;
            }
            throw failure;
        }
        nLost.set(0);
        Reply reply = new Reply(called, response.statusCode(), response.body());
        OdometerException refusal = reply.refusal(response.headers().firstValue("Retry-After"));
        String connection = response.headers().firstValue("Connection").orElse("");
        endpoints.judge(called, began, refusal, connection.equalsIgnoreCase("close"));
        if (refusal != null) {
            throw refusal;
        }
        return reply;
    }

    private HttpResponse<byte[]> sent(HttpRequest.Builder request, String url, double timeout) {
        // The JDK's own timeout ends with the head of the reply. Ours has the body, too.
        HttpRequest timed = request.timeout(Duration.ofNanos(nanos(timeout))).build();
        // Not `sendAsync`: its reply comes by the common pool, which a program may keep busy.
        FutureTask<HttpResponse<byte[]>> exchange = new FutureTask<>(
                () -> http().send(timed, HttpResponse.BodyHandlers.ofByteArray()));
        try {
            threads.execute(exchange);
            return exchange.get(nanos(timeout), TimeUnit.NANOSECONDS);
        } catch (TimeoutException late) {
            throw OdometerException.unreachable(url, late);
        } catch (ExecutionException failure) {
            if (failure.getCause() instanceof OdometerException) {
                throw ((OdometerException) failure.getCause()).with("");
            }
            throw OdometerException.unreachable(url, failure.getCause());
        } catch (InterruptedException interrupt) {
            throw OdometerException.interrupted(url, interrupt);
        } catch (RuntimeException | OutOfMemoryError noThread) {
            throw new OdometerException("client", "no thread for a call", noThread);
        } finally {
            exchange.cancel(true);
        }
    }

    /**
     * Returns the JDK's HTTP client, which keeps the connections. It has a thread of its own, which
     * is like the thread that calls this first.
     *
     * <p>The JDK decides some things for all clients of a JVM. It closes idle connections after
     * `jdk.httpclient.keepalive.timeout` seconds, and keeps the addresses of a name for
     * `networkaddress.cache.ttl` seconds. Of the addresses of a name it tries the first one.
     */
    private HttpClient http() {
        synchronized (connecting) {
            if (isClosed) {
                throw closed();
            }
            if (http == null || isSuspect) {
                HttpClient.Builder options = HttpClient.newBuilder()
                        .version(HttpClient.Version.HTTP_1_1)
                        .followRedirects(HttpClient.Redirect.NEVER)
                        .proxy(HttpClient.Builder.NO_PROXY)
                        .connectTimeout(Duration.ofSeconds(1))
                        .executor(threads);
                if (context != null) {
                    options.sslContext(context);
                }
                HttpClient old = http;
                http = options.build();
                isSuspect = false;
                release(old, 0);
            }
            return http;
        }
    }

    /** Says which replica to call next, by how the calls before went. Times are in seconds. */
    static final class Endpoints {
        private static final double MAX_REST = 30.0;
        /** How long others wait for the call that probes a replica. */
        private static final double PROBE_SECONDS = 8.0;
        /** With these a replica says that it cannot serve now. */
        private static final Set<Integer> UNFIT = Set.of(502, 503, 504);

        /** A replica, and what is known of it. */
        static final class Health {
            final String url;
            private int nFailures;
            private double failedAt;
            private double restsUntil;
            private double calledAt;
            /** Since when callers in a hurry got no reply, or NaN after any other end of a call. */
            private double silentSince = Double.NaN;

            private Health(String url) {
                this.url = url;
            }
        }

        private final DoubleSupplier clock;
        private final DoubleSupplier random;
        private final List<Health> all = new ArrayList<>();
        private int current;

        /** Begins at a random endpoint. `random` gives parts of 1. */
        Endpoints(List<String> urls, DoubleSupplier clock, DoubleSupplier random) {
            this.clock = clock;
            this.random = random;
            urls.forEach(url -> all.add(new Health(url)));
            current = (int) (random.getAsDouble() * urls.size());
        }

        /** Returns the present one, the next one that does not rest, or who has rested longest. */
        synchronized Health choose() {
            double now = clock.getAsDouble();
            Health chosen = null;
            for (int offset = 0; offset < all.size(); offset++) {
                Health it = all.get((current + offset) % all.size());
                if (it.nFailures == 0 || now >= it.restsUntil) {
                    chosen = it;
                    break;
                }
                chosen = chosen == null || it.calledAt < chosen.calledAt ? it : chosen;
            }
            current = all.indexOf(chosen);
            chosen.calledAt = now;
            // If it has rested, this call alone probes it.
            chosen.restsUntil = now + PROBE_SECONDS;
            return chosen;
        }

        /** Notes a reply. The refusal is null if the reply was a success. */
        synchronized void judge(
                Health it, double began, OdometerException refusal, boolean isLast) {
            it.silentSince = Double.NaN;
            if (refusal != null && UNFIT.contains(refusal.status)) {
                failed(it, began);
                return;
            }
            // A call from before the last failure proves nothing about the time after it.
            if (began >= it.failedAt) {
                it.nFailures = 0;
            }
            // Another replica may have numbers in memory. A limit holds for this replica.
            boolean isFull = refusal != null && refusal.status == 429 && refusal.limit == 0;
            if (isLast || isFull || refusal != null && refusal.isForeign()) {
                leave(it);
            }
        }

        /** Lets the endpoint rest: it gave no reply, or said that it cannot serve now. */
        synchronized void failed(Health it, double began) {
            it.silentSince = Double.NaN;
            // Calls in flight at the same time fail together, and count once.
            if (it.nFailures == 0 || began >= it.failedAt) {
                double rest = Math.min(MAX_REST, Math.pow(2, it.nFailures++));
                it.failedAt = clock.getAsDouble();
                // Longer by up to a quarter, so that clients do not return together.
                it.restsUntil = it.failedAt + rest * (1 + 0.25 * random.getAsDouble());
            }
            leave(it);
        }

        /**
         * Notes that a caller in a hurry got no reply. One such call says nothing about the
         * endpoint, but it failed if they got none for as long as the patience.
         */
        synchronized void hurried(Health it, double began, double patience) {
            it.silentSince = Double.isNaN(it.silentSince) ? began : it.silentSince;
            if (clock.getAsDouble() - it.silentSince >= patience) {
                failed(it, began);
            }
        }

        /** Lets the next call go to another endpoint. This one does not rest. */
        synchronized void leave(Health it) {
            current = all.get(current) == it ? (current + 1) % all.size() : current;
        }

        synchronized void forget() {
            for (Health it : all) {
                it.nFailures = 0;
                it.failedAt = Double.NEGATIVE_INFINITY;
                it.silentSince = Double.NaN;
            }
        }

        /** Returns the wait after so many failures in a row: full jitter, 50 ms to 2 s. */
        double pause(int nFailures, OdometerException error) {
            double ceiling = Math.min(2.0, 0.05 * Math.pow(2, Math.min(nFailures - 1, 16)));
            // A sole replica is asked again only after the time that it named.
            double named = all.size() == 1 ? Math.min(60, error.retryAfter) : 0;
            return named + ceiling * random.getAsDouble();
        }
    }

    /** A reply. If a method cannot read it, the method throws, and the next call goes elsewhere. */
    final class Reply {
        final Map<?, ?> body;
        private final Endpoints.Health from;
        private final int status;

        /** Makes a reply. The body is empty if it is no object of JSON: a balancer sends pages. */
        Reply(Endpoints.Health from, int status, byte[] text) {
            this.from = from;
            this.status = status;
            Object read = null;
            try {
                read = Json.read(new String(text, StandardCharsets.UTF_8));
            } catch (IllegalArgumentException noJson) {
                // The status says enough.
            }
            body = read instanceof Map ? (Map<?, ?>) read : Map.of();
        }

        /** Returns what is wrong with the reply, or null if it is a success. */
        OdometerException refusal(Optional<String> retryAfter) {
            boolean isSuccess = status >= 200 && status <= 299;
            if (isSuccess && !body.isEmpty()) {
                return null;
            }
            Object given = body.get("code");
            String code = given instanceof String ? (String) given
                    : isSuccess ? "invalid_reply" : "http_" + status;
            String what = from.url + " answered " + status + " " + code + ": " + body.get("detail");
            return new OdometerException(code, what, null, from.url, status,
                    wholeOrZero(body.get("limit")), wholeOrZero(retryAfter.orElse("")));
        }

        private OdometerException invalid(String what) {
            endpoints.leave(from);
            return new OdometerException(
                    "invalid_reply", from.url + " gave " + what, null, from.url, status, 0, 0);
        }

        private long wholeOrZero(Object text) {
            boolean isWhole = text instanceof String && ((String) text).matches("[0-9]{1,18}");
            return isWhole ? Long.parseLong((String) text) : 0;
        }

        /** Returns a field, which must be of this type. */
        <T> T get(String field, Class<T> type) {
            if (!type.isInstance(body.get(field))) {
                throw invalid("no " + field);
            }
            return type.cast(body.get(field));
        }

        /** Reads the reply to a call for one number. */
        Item one() {
            return new Item(whole(body, "value"), get("id", String.class), 0);
        }

        /** Reads one range, which must have as many numbers. */
        Run range(long count) {
            Run run = runs(false).get(0);
            if (run.count != count) {
                throw invalid("a broken range");
            }
            return run;
        }

        /** Reads a batch or a block. There is at least one number. */
        List<Run> runs(boolean withIds) {
            List<?> ranges = body.containsKey("ranges") ? get("ranges", List.class)
                    : List.of(body);
            List<?> ids = withIds ? get("ids", List.class) : List.of();
            List<Run> runs = new ArrayList<>();
            int at = 0;
            for (Object range : ranges) {
                Map<?, ?> fields = range instanceof Map ? (Map<?, ?>) range : Map.of();
                Run run = run(fields, withIds ? ids.subList(at, ids.size()) : null);
                runs.add(run);
                at += withIds ? (int) run.count : 0;
            }
            if (runs.isEmpty() || !ids.stream().allMatch(String.class::isInstance)) {
                throw invalid("no numbers, or ids that are no texts");
            }
            return runs;
        }

        private Run run(Map<?, ?> fields, List<?> ids) {
            long first = whole(fields, "first");
            long step = whole(fields, "step");
            long count = whole(fields, "count");
            boolean isRight;
            try {
                long last = Math.addExact(first, Math.multiplyExact(count - 1, step));
                isRight = count >= 1 && step != 0 && last == whole(fields, "last");
            } catch (ArithmeticException beyond64Bits) {
                isRight = false;
            }
            if (!isRight || ids != null && ids.size() < count) {
                throw invalid("a range that is none, or fewer ids than numbers: " + fields);
            }
            return new Run(first, step, count, ids);
        }

        private long whole(Map<?, ?> fields, String field) {
            Object value = fields.get(field);
            try {
                return value instanceof BigDecimal ? ((BigDecimal) value).longValueExact()
                        : Long.parseLong((String) value);
            } catch (ArithmeticException | ClassCastException | NumberFormatException wrong) {
                throw invalid("no whole number as " + field);
            }
        }
    }

    /** Reads JSON strictly (RFC 8259). */
    static final class Json {
        private static final int MAX_DEPTH = 64;
        private static final Pattern TOKEN = Pattern.compile("[ \t\r\n]*+(?:([{}\\[\\],:])"
                + "|\"((?:[^\"\\\\\\x00-\\x1f]|\\\\(?:[\"\\\\/bfnrt]|u[0-9a-fA-F]{4}))*+)\""
                + "|(true|false|null)"
                + "|(-?(?:0|[1-9][0-9]*+)(?:\\.[0-9]++)?(?:[eE][+-]?[0-9]++)?))[ \t\r\n]*+");
        private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u(.{4})|(.))");

        private final Matcher tokens;
        private int at;

        private Json(String text) {
            tokens = TOKEN.matcher(text);
        }

        /**
         * Returns a Map, a List, a String, a BigDecimal, a Boolean or null. Throws
         * IllegalArgumentException if the text is no JSON.
         */
        static Object read(String text) {
            Json json = new Json(text);
            Object value = json.value(json.next(), 0);
            require(json.at == text.length());
            return value;
        }

        private static void require(boolean isRight) {
            if (!isRight) {
                throw new IllegalArgumentException("this is no JSON");
            }
        }

        /** Reads a token. Returns it if it is a sign, or else an empty text. */
        private String next() {
            require(tokens.region(at, tokens.regionEnd()).lookingAt());
            at = tokens.end();
            return tokens.group(1) == null ? "" : tokens.group(1);
        }

        /** Reads a comma and the token after it, or the sign that ends a list. */
        private String nextOf(String end) {
            String sign = next();
            require(sign.equals(",") || sign.equals(end));
            if (sign.equals(",")) {
                sign = next();
                require(!sign.equals(end));
            }
            return sign;
        }

        private Object value(String sign, int depth) {
            require(depth < MAX_DEPTH);
            if (sign.equals("{")) {
                Map<String, Object> fields = new HashMap<>();
                for (String token = next(); !token.equals("}"); token = nextOf("}")) {
                    require(tokens.group(2) != null);
                    String name = string();
                    require(next().equals(":"));
                    fields.put(name, value(next(), depth + 1));
                }
                return fields;
            }
            if (sign.equals("[")) {
                List<Object> values = new ArrayList<>();
                for (String token = next(); !token.equals("]"); token = nextOf("]")) {
                    values.add(value(token, depth + 1));
                }
                return values;
            }
            require(sign.isEmpty());
            if (tokens.group(2) != null) {
                return string();
            }
            String word = tokens.group(3);
            return word == null ? new BigDecimal(tokens.group(4))
                    : word.equals("null") ? null : Boolean.valueOf(word);
        }

        private String string() {
            return ESCAPE.matcher(tokens.group(2)).replaceAll(found -> {
                String code = found.group(1);
                char plain = code != null ? (char) Integer.parseInt(code, 16)
                        : "\"\\/\b\f\n\r\t".charAt("\"\\/bfnrt".indexOf(found.group(2)));
                return Matcher.quoteReplacement(String.valueOf(plain));
            });
        }

    }
}
