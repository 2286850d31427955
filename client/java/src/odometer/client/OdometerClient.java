package odometer.client;

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Takes numbers that never repeat from one installation of Odometer.
 *
 * <p>It fetches ranges of numbers ahead of need and counts in memory, so most numbers cost no call.
 * Make one client for a process, and share it among threads.
 *
 * <pre>{@code
 * OdometerClient client = OdometerClient.builder("http://a:8080", "http://b:8080").build();
 * Sequence orders = client.sequence("orders");
 * long number = orders.next();
 * }</pre>
 */
public final class OdometerClient implements AutoCloseable {
    /** The version, which is that of the service. */
    public static final String VERSION = "0.1.0";

    static final System.Logger LOG = System.getLogger("odometer.client");
    private static final String DEFAULT_URL = "http://127.0.0.1:8080";

    private final Service service;
    private final SafeHooks hooks;
    private final Limits limits;
    private final Threads threads = new Threads();
    private final Map<List<String>, Sequence> sequences = new HashMap<>();

    private OdometerClient(Builder from) {
        SSLContext context = from.caFile == null ? from.context : trusting(from.caFile);
        Service.Endpoints endpoints = new Service.Endpoints(
                from.endpoints, Service::now, Math::random);
        Service.Transport transport = new Service.Transport(
                context, threads.own, Service::now);
        service = new Service(endpoints, transport, from.token);
        hooks = new SafeHooks(from.hooks);
        limits = new Limits(from);
    }

    /** Returns options for a client that calls these addresses, such as `http://host:8080`. */
    public static Builder builder(String... endpoints) {
        return new Builder().endpoints(endpoints.length == 0 ? List.of(DEFAULT_URL)
                : List.of(endpoints));
    }

    /**
     * Returns options from `ODOMETER_URL` (addresses, with commas between them), `ODOMETER_TOKEN`,
     * `ODOMETER_TOKEN_FILE` and `ODOMETER_CA_FILE` of an environment: `System.getenv()`.
     */
    public static Builder fromEnvironment(Map<String, String> environment) {
        String urls = environment.getOrDefault("ODOMETER_URL", "");
        Builder builder = builder(Arrays.stream(urls.split(",")).map(String::trim)
                .filter(url -> !url.isEmpty()).toArray(String[]::new));
        String token = environment.getOrDefault("ODOMETER_TOKEN", "");
        String tokenFile = environment.getOrDefault("ODOMETER_TOKEN_FILE", "");
        if (!token.isEmpty()) {
            builder.token(token);
        } else if (!tokenFile.isEmpty()) {
            builder.tokenFile(Path.of(tokenFile));
        }
        String caFile = environment.getOrDefault("ODOMETER_CA_FILE", "");
        return caFile.isEmpty() ? builder : builder.caFile(Path.of(caFile));
    }

    /** Returns a sequence. The same name gives the same one, with the same numbers in memory. */
    public Sequence sequence(String name) {
        return sequence(name, null, null);
    }

    /** Returns a sequence, as below, without a period. */
    public Sequence sequence(String name, Kind kind) {
        return sequence(name, kind, null);
    }

    /**
     * Returns a sequence.
     *
     * @param kind counts only without the right `look`. It may be null.
     * @param period the period, for sequences that have some. It may be null.
     */
    public Sequence sequence(String name, Kind kind, String period) {
        synchronized (sequences) {
            return sequences.computeIfAbsent(Arrays.asList(name, period),
                    key -> new Sequence(name, period, kind, service, hooks, limits, threads));
        }
    }

    /**
     * Drops all numbers in memory, and closes the connections.
     *
     * <p>Call it after the machine was resumed from a snapshot, or the process from a checkpoint:
     * otherwise two copies give the same numbers.
     */
    public void forget() {
        drop("forget");
    }

    /** Drops all numbers in memory, and closes the connections. */
    @Override
    public void close() {
        drop("close");
    }

    private void drop(String cause) {
        // First, so that no refill of those who wait uses a connection of the time before.
        service.closeIdle();
        List<Sequence> all;
        synchronized (sequences) {
            all = new ArrayList<>(sequences.values());
        }
        all.forEach(sequence -> sequence.stock.forget(cause));
    }

    private static SSLContext trusting(Path caFile) {
        try (InputStream file = Files.newInputStream(caFile)) {
            KeyStore authorities = KeyStore.getInstance(KeyStore.getDefaultType());
            authorities.load(null, null);
            CertificateFactory factory = CertificateFactory.getInstance("X.509");
            for (Certificate authority : factory.generateCertificates(file)) {
                authorities.setCertificateEntry("authority-" + authorities.size(), authority);
            }
            TrustManagerFactory trust = TrustManagerFactory
                    .getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(authorities);
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, trust.getTrustManagers(), null);
            return context;
        } catch (IOException | GeneralSecurityException error) {
            throw new IllegalArgumentException("the authority " + caFile + ": " + error, error);
        }
    }

    /** Says whether a sequence may be buffered. */
    public enum Kind {
        /** Counts upwards, without periods and in no strict order. */
        BUFFERED,
        /** Is strict, has periods, or is time-ordered: each number is a call. */
        UNBUFFERED
    }

    /** The options of a client. */
    public static final class Builder {
        private List<String> endpoints = List.of();
        private Supplier<String> token = () -> null;
        private Path caFile;
        private SSLContext context;
        private Duration deadline = Duration.ofSeconds(2);
        private Duration refillTimeout = Duration.ofSeconds(7);
        private Duration maxAge;
        private int initialSize = 100;
        private Hooks hooks = new Hooks() {};

        private Builder() {}

        private Builder endpoints(List<String> urls) {
            List<String> checked = new ArrayList<>();
            urls.forEach(url -> checked.add(checked(url)));
            endpoints = checked;
            return this;
        }

        /** Sends this bearer token. */
        public Builder token(String given) {
            String secret = checkedToken(given);
            token = () -> secret;
            return this;
        }

        /** Reads the bearer token from a file at each call. If it cannot, the last one counts. */
        public Builder tokenFile(Path file) {
            token = new TokenFile(file);
            return this;
        }

        /** Trusts only this authority for `https`: a file with certificates in PEM form. */
        public Builder caFile(Path file) {
            caFile = file;
            return this;
        }

        /** Uses this context for `https`. A CA file counts more. */
        public Builder sslContext(SSLContext given) {
            context = given;
            return this;
        }

        /** Bounds how long a caller waits who finds nothing in memory. 2 s by default. */
        public Builder deadline(Duration limit) {
            deadline = limit;
            return this;
        }

        /** Bounds one call. 7 s by default, because the service holds a call for up to 5 s. */
        public Builder refillTimeout(Duration limit) {
            refillTimeout = limit;
            return this;
        }

        /** Drops numbers that were asked for longer ago. Off by default. */
        public Builder maxAge(Duration limit) {
            maxAge = limit;
            return this;
        }

        /** Sets how many numbers the first refill asks for. 100 by default. */
        public Builder initialSize(int size) {
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
            return new OdometerClient(this);
        }

        private static String checked(String url) {
            String wrong = "`" + url + "` is no address such as http://host:8080";
            try {
                URI uri = new URI(url);
                boolean isHttp = url.startsWith("http://") || url.startsWith("https://");
                boolean isRight = isHttp && uri.getHost() != null && uri.getPort() != 0
                        && uri.getPort() < 65536 && uri.getRawQuery() == null
                        && uri.getRawFragment() == null && uri.getRawUserInfo() == null;
                if (!isRight) {
                    throw new IllegalArgumentException(wrong);
                }
            } catch (URISyntaxException error) {
                throw new IllegalArgumentException(wrong, error);
            }
            return url.replaceAll("/+$", "");
        }

        /** Returns the token, or null if it is empty. No message has it. */
        private static String checkedToken(String given) {
            String secret = given.strip();
            if (!secret.chars().allMatch(it -> it > ' ' && it < 127)) {
                throw new IllegalArgumentException("the token has characters that no header has");
            }
            return secret.isEmpty() ? null : secret;
        }
    }

    /** The bearer token in a file, which may be replaced at any time. */
    private static final class TokenFile implements Supplier<String> {
        private final Path file;
        private volatile String last;

        TokenFile(Path file) {
            this.file = file;
            try {
                last = Builder.checkedToken(Files.readString(file));
            } catch (IOException error) {
                throw new IllegalArgumentException("the token in " + file + ": " + error, error);
            }
        }

        @Override
        public String get() {
            try {
                String read = Builder.checkedToken(Files.readString(file));
                last = read == null ? last : read;
            } catch (IOException | IllegalArgumentException notNow) {
                // It is being replaced, as an empty file may be.
            }
            return last;
        }
    }

    /** The threads of a client. They are daemons, and end if they have nothing to do. */
    static final class Threads {
        private static final int MAX_FOR_CALLERS = 32;
        private static final int IDLE_SECONDS = 10;

        /** For refills and for the JDK's HTTP client. A caller's work could block them. */
        final Executor own;
        /** For what callers do with a future. */
        final Executor ofCallers;

        Threads() {
            // Their own group, because the JDK's HTTP client starts some of them from another one.
            ThreadGroup group = Thread.currentThread().getThreadGroup();
            ThreadFactory factory = work -> {
                Thread thread = new Thread(group, work, "odometer-client");
                thread.setDaemon(true);
                return thread;
            };
            own = new ThreadPoolExecutor(0, Integer.MAX_VALUE, IDLE_SECONDS, TimeUnit.SECONDS,
                    new SynchronousQueue<>(), factory);
            ThreadPoolExecutor bounded = new ThreadPoolExecutor(MAX_FOR_CALLERS, MAX_FOR_CALLERS,
                    IDLE_SECONDS, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), factory);
            bounded.allowCoreThreadTimeOut(true);
            ofCallers = bounded;
        }
    }

    /** The limits of a client, in seconds. */
    static final class Limits {
        final double deadline;
        final double refillTimeout;
        final double maxAge;
        final long initialSize;

        private Limits(Builder from) {
            deadline = seconds(from.deadline);
            refillTimeout = seconds(from.refillTimeout);
            maxAge = from.maxAge == null ? Double.POSITIVE_INFINITY : seconds(from.maxAge);
            initialSize = from.initialSize;
        }

        static double seconds(Duration duration) {
            return duration.getSeconds() + duration.getNano() / 1e9;
        }
    }

    /** Tells your program what the client does. No lock is held meanwhile. */
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

    /** Calls the hooks of a program, and survives their exceptions. */
    static final class SafeHooks {
        private final Hooks hooks;

        SafeHooks(Hooks hooks) {
            this.hooks = hooks;
        }

        void refill(String sequence, String endpoint, String outcome, double seconds, long count) {
            survive(() -> hooks.refill(sequence, endpoint, outcome, seconds, count));
        }

        void waited(double seconds) {
            survive(() -> hooks.waited(seconds));
        }

        void dropped(long count, String cause) {
            if (count > 0) {
                survive(() -> hooks.dropped(count, cause));
            }
        }

        /** Returns a span that has a header, even if that of the program fails. */
        Hooks.Span span(String sequence) {
            List<Hooks.Span> opened = new ArrayList<>(1);
            survive(() -> {
                Hooks.Span span = hooks.span(sequence);
                if (span.traceparent().matches("[0-9a-f]{2}(-[0-9a-f]+){3}")) {
                    opened.add(span);
                }
            });
            return opened.isEmpty() ? new Hooks() {}.span(sequence) : opened.get(0);
        }

        void end(Hooks.Span span, RuntimeException failure) {
            survive(() -> span.end(failure));
        }

        private static void survive(Runnable hook) {
            try {
                hook.run();
            } catch (RuntimeException error) {
                LOG.log(System.Logger.Level.WARNING, "a hook failed", error);
            }
        }
    }

    /** Says why there is no number: what happened, and a word for it. */
    public static class OdometerException extends RuntimeException {
        private static final long serialVersionUID = 1L;
        private final String code;

        OdometerException(String code, String message, Throwable cause) {
            super(message, cause);
            this.code = code;
        }

        /**
         * Returns a word for programs: `empty`, `deadline`, `interrupted`, `client` (a defect or a
         * wrong option), or the code of a call that failed.
         */
        public final String code() {
            return code;
        }

        static OdometerException interrupted(InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            return new OdometerException("interrupted", "the thread was interrupted", interrupt);
        }

        /** Returns the same for a caller, with the stack of this thread. */
        OdometerException again() {
            return new OdometerException(code, getMessage(), this);
        }
    }

    /** Says that no number is in memory. A refill has started. */
    public static final class Empty extends OdometerException {
        private static final long serialVersionUID = 1L;

        Empty(String message, Throwable lastFailure) {
            super("empty", message, lastFailure);
        }
    }

    /** Says that no number came in time. The refill goes on. The cause is its last failure. */
    public static final class DeadlinePassed extends OdometerException {
        private static final long serialVersionUID = 1L;

        DeadlinePassed(String message, Throwable lastFailure) {
            super("deadline", message, lastFailure);
        }
    }

    /**
     * Says that one call to one replica gave no number. The code is the service's, or `timeout`,
     * `connection`, `invalid_reply`, or `http_404` for a refusal without a code.
     */
    public static final class CallFailed extends OdometerException {
        private static final long serialVersionUID = 1L;
        private static final String TIMEOUT = "timeout";
        private static final List<Integer> RETRYABLE = List.of(429, 502, 503, 504);

        private final String endpoint;
        private final int status;
        private final long limit;
        private final long retryAfter;

        CallFailed(String message, String endpoint, String code, int status, long limit,
                long retryAfter, Throwable cause) {
            super(code, message, cause);
            this.endpoint = endpoint;
            this.status = status;
            this.limit = limit;
            this.retryAfter = retryAfter;
        }

        /** Returns the failure of a call without a reply. Its numbers are a gap. */
        static CallFailed unanswered(String endpoint, boolean isLate, Throwable cause) {
            String message = endpoint + " gave no reply" + (isLate ? " in time" : ": " + cause);
            return new CallFailed(
                    message, endpoint, isLate ? TIMEOUT : "connection", 0, 0, 0, cause);
        }

        /** Returns the failure of a call whose reply is none of Odometer. */
        static CallFailed invalid(String endpoint, String what) {
            return new CallFailed(
                    endpoint + " " + what, endpoint, "invalid_reply", -1, 0, 0, null);
        }

        /** Returns the same refusal with a sentence about what to do. */
        CallFailed with(String advice) {
            return new CallFailed(getMessage() + " " + advice, endpoint, code(), status, limit,
                    retryAfter, getCause());
        }

        @Override
        CallFailed again() {
            return new CallFailed(getMessage(), endpoint, code(), status, limit, retryAfter, this);
        }

        /** Returns the address of the replica. */
        public String endpoint() {
            return endpoint;
        }

        /** Returns the status of HTTP, or 0 or less if there was no reply that can be read. */
        public int status() {
            return status;
        }

        /** Returns how many numbers the call could have now, or 0 if the service did not say. */
        public long limit() {
            return limit;
        }

        /** Returns the seconds after which the service wants to be asked again, or 0. */
        public long retryAfter() {
            return retryAfter;
        }

        boolean isUnanswered() {
            return status == 0;
        }

        boolean isTimeout() {
            return isUnanswered() && code().equals(TIMEOUT);
        }

        boolean isRetryable() {
            return isUnanswered() || RETRYABLE.contains(status);
        }
    }
}
