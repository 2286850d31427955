package odometer.client;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.UnresolvedAddressException;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.DoubleSupplier;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import javax.net.ssl.SSLContext;
import odometer.client.OdometerClient.CallFailed;
import odometer.client.OdometerClient.OdometerException;

/** Makes one call to the replica that has its turn, and reads its reply. Times are in seconds. */
final class Service {
    /** With these a replica says that it cannot serve now. */
    private static final Set<Integer> UNFIT = Set.of(502, 503, 504);

    final Endpoints endpoints;
    private final Transport transport;
    private final Supplier<String> token;

    /** Makes a service. The token is asked for at each call, and may be null. */
    Service(Endpoints endpoints, Transport transport, Supplier<String> token) {
        this.endpoints = endpoints;
        this.transport = transport;
        this.token = token;
    }

    /** Returns a time that only goes forward. */
    static double now() {
        return System.nanoTime() / 1e9;
    }

    static long nanos(double seconds) {
        return Math.round(Math.max(0.0, seconds) * 1e9);
    }

    /**
     * Returns the wait after so many failures in a row: full jitter, 50 ms doubling to 2 s.
     *
     * <p>A sole replica is asked again only after the time that it named.
     */
    static double pause(int nFailures, Throwable error, boolean isSole, DoubleSupplier random) {
        double ceiling = Math.min(2.0, 0.05 * Math.pow(2, Math.min(nFailures - 1, 16)));
        long named = isSole && error instanceof CallFailed ? ((CallFailed) error).retryAfter() : 0;
        return Math.min(named, 60) + ceiling * random.getAsDouble();
    }

    /** Closes the connections that no call uses. The others are closed when their calls end. */
    void closeIdle() {
        transport.closeIdle();
    }

    /**
     * Makes one call at one endpoint. Throws {@link CallFailed}: it retries nothing.
     *
     * <p>If a hasty call gets no reply in time, that says nothing about the endpoint.
     */
    Reply ask(String method, String path, double timeout, String traceparent, boolean isHasty) {
        Endpoints.Turn turn = endpoints.choose();
        boolean isJudged = false;
        try {
            HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(turn.url + path))
                    .method(method, HttpRequest.BodyPublishers.noBody())
                    .header("Accept", "application/json")
                    .header("User-Agent", "odometer-client-java/" + OdometerClient.VERSION);
            String secret = token.get();
            if (secret != null) {
                request.header("Authorization", "Bearer " + secret);
            }
            if (traceparent != null) {
                request.header("traceparent", traceparent);
            }
            HttpResponse<byte[]> response = transport.call(request, timeout, turn.url);
            Reply reply = Reply.of(response, turn.url);
            isJudged = true;
            endpoints.succeeded(turn);
            if ("close".equalsIgnoreCase(response.headers().firstValue("Connection").orElse(""))) {
                endpoints.movedOn(turn);
            }
            return reply;
        } catch (CallFailed failure) {
            isJudged = true;
            judge(turn, failure, isHasty);
            throw failure;
        } finally {
            if (!isJudged) {
                endpoints.abandoned(turn);
            }
        }
    }

    private void judge(Endpoints.Turn turn, CallFailed failure, boolean isHasty) {
        if (isHasty && failure.isTimeout()) {
            endpoints.abandoned(turn);
        } else if (failure.isUnanswered() || UNFIT.contains(failure.status())) {
            endpoints.failed(turn);
        } else {
            endpoints.succeeded(turn);
            // Another replica may have numbers in memory. A limit holds for this replica.
            if (failure.status() == 429 && failure.limit() == 0) {
                endpoints.movedOn(turn);
            }
        }
    }

    /** Says which replica to call next, by how the calls before went. No I/O. */
    static final class Endpoints {
        private static final double MIN_REST = 1.0;
        private static final double MAX_REST = 30.0;
        /** A rest is longer by up to this part of it, so that clients do not return together. */
        private static final double REST_JITTER = 0.25;

        /** One call to one endpoint. Tell the endpoints how it ended. */
        static final class Turn {
            final String url;
            final boolean isProbe;
            private final int index;
            private final double started;

            private Turn(int index, String url, double started, boolean isProbe) {
                this.index = index;
                this.url = url;
                this.started = started;
                this.isProbe = isProbe;
            }
        }

        private static final class Health {
            int nFailures;
            double failedAt;
            double restsUntil;
            boolean isProbed;
        }

        private final List<String> urls;
        private final DoubleSupplier clock;
        private final DoubleSupplier random;
        private final Health[] health;
        private int current;

        /** Begins at a random endpoint. `random` gives parts of 1. */
        Endpoints(List<String> urls, DoubleSupplier clock, DoubleSupplier random) {
            this.urls = List.copyOf(urls);
            this.clock = clock;
            this.random = random;
            this.health = Stream.generate(Health::new).limit(urls.size()).toArray(Health[]::new);
            this.current = (int) (random.getAsDouble() * urls.size());
        }

        boolean isSole() {
            return urls.size() == 1;
        }

        /** Returns whom to call now. */
        synchronized Turn choose() {
            double now = clock.getAsDouble();
            current = pick(now);
            boolean isProbe = health[current].nFailures > 0;
            health[current].isProbed |= isProbe;
            return new Turn(current, urls.get(current), now, isProbe);
        }

        /** Notes that the endpoint answered, be it with a refusal of the call. */
        synchronized void succeeded(Turn turn) {
            // A call from before the last failure proves nothing about the time after it.
            if (turn.isProbe || turn.started >= health[turn.index].failedAt) {
                health[turn.index] = new Health();
            }
        }

        /** Lets the endpoint rest: it gave no reply, or said that it cannot serve now. */
        synchronized void failed(Turn turn) {
            Health it = health[turn.index];
            endProbe(turn);
            // Calls in flight at the same time fail together, and count once.
            if (it.nFailures == 0 || turn.started >= it.failedAt) {
                it.nFailures++;
                it.failedAt = clock.getAsDouble();
                double rest = Math.min(MAX_REST, MIN_REST * Math.pow(2, it.nFailures - 1));
                it.restsUntil = it.failedAt + rest * (1 + REST_JITTER * random.getAsDouble());
            }
            leave(turn.index);
        }

        /** Notes that the endpoint works, but that the next call goes to another one. */
        synchronized void movedOn(Turn turn) {
            endProbe(turn);
            leave(turn.index);
        }

        /** Notes that the call ended without saying anything about the endpoint. */
        synchronized void abandoned(Turn turn) {
            endProbe(turn);
        }

        private void endProbe(Turn turn) {
            if (turn.isProbe) {
                health[turn.index].isProbed = false;
            }
        }

        private void leave(int index) {
            if (current == index) {
                current = (index + 1) % urls.size();
            }
        }

        private int pick(double now) {
            for (int offset = 0; offset < urls.size(); offset++) {
                int index = (current + offset) % urls.size();
                Health it = health[index];
                if (it.nFailures == 0 || now >= it.restsUntil && !it.isProbed) {
                    return index;
                }
            }
            // All rest: the one that has rested longest, and rather one that nobody probes.
            Comparator<Integer> probed = Comparator.comparing(it -> health[it].isProbed);
            return IntStream.range(0, urls.size()).boxed()
                    .min(probed.thenComparing(it -> health[it].failedAt)).orElseThrow();
        }
    }

    /**
     * Makes HTTP calls. Each connection serves for 60 s at most, so none is idle for longer.
     *
     * <p>A service closes connections that were idle for 75 s, and a call that meets this is lost.
     * Names are resolved for each new connection.
     */
    static final class Transport {
        private static final double MAX_LINK_AGE = 60.0;

        private final SSLContext context;
        private final Executor threads;
        private final DoubleSupplier clock;
        private Link link;

        /** Makes a transport. The context may be null: then `https` trusts whom the JVM trusts. */
        Transport(SSLContext context, Executor threads, DoubleSupplier clock) {
            this.context = context;
            this.threads = threads;
            this.clock = clock;
        }

        /** Makes one call, or throws {@link CallFailed}. It ends after `timeout` at most. */
        HttpResponse<byte[]> call(HttpRequest.Builder request, double timeout, String endpoint) {
            Link used = acquire(endpoint);
            Body body = new Body();
            CompletableFuture<HttpResponse<byte[]>> exchange = null;
            try {
                long nanos = Math.max(1, nanos(timeout));
                // The JDK's own timeout ends with the headers of the reply. Ours has the body, too.
                HttpRequest timed = request.timeout(Duration.ofNanos(nanos)).build();
                exchange = used.http.sendAsync(timed, body);
                return exchange.get(nanos, TimeUnit.NANOSECONDS);
            } catch (TimeoutException late) {
                throw CallFailed.unanswered(endpoint, true, late);
            } catch (ExecutionException failure) {
                Throwable cause = failure.getCause();
                if (cause instanceof IOException || cause instanceof UnresolvedAddressException) {
                    boolean isLate = cause instanceof HttpTimeoutException;
                    throw CallFailed.unanswered(endpoint, isLate, cause);
                }
                throw new OdometerException("client", endpoint + " cannot be called", cause);
            } catch (InterruptedException interrupt) {
                throw OdometerException.interrupted(interrupt);
            } finally {
                if (exchange != null && !exchange.isDone()) {
                    // Before JDK 16 the first line ends the call, and since then the second.
                    body.cancel();
                    exchange.cancel(true);
                }
                release(used);
            }
        }

        void closeIdle() {
            Link old;
            synchronized (this) {
                old = retire();
            }
            close(old);
        }

        private Link acquire(String endpoint) {
            Link old = null;
            Link used;
            synchronized (this) {
                double now = clock.getAsDouble();
                if (link != null && now - link.born >= MAX_LINK_AGE) {
                    old = retire();
                }
                try {
                    link = link == null ? new Link(now, context, threads) : link;
                } catch (RuntimeException noFile) {
                    throw CallFailed.unanswered(endpoint, false, noFile);
                }
                used = link;
                used.nCalls++;
            }
            close(old);
            return used;
        }

        private void release(Link used) {
            boolean isOver;
            synchronized (this) {
                used.nCalls--;
                isOver = used.isRetired && used.nCalls == 0;
            }
            close(isOver ? used : null);
        }

        /** Lets no further call use the present link. Returns it if no call uses it now. */
        private Link retire() {
            Link old = link;
            link = null;
            if (old == null) {
                return null;
            }
            old.isRetired = true;
            return old.nCalls == 0 ? old : null;
        }

        private static void close(Link old) {
            if (old != null) {
                old.close();
            }
        }
    }

    /** Connections that are closed together. The JDK can close no single one. */
    private static final class Link {
        private static final Duration CONNECT_TIMEOUT = Duration.ofSeconds(1);
        /** Since JDK 21. */
        private static final boolean HAS_CLOSE = AutoCloseable.class
                .isAssignableFrom(HttpClient.class);

        final HttpClient http;
        final double born;
        int nCalls;
        boolean isRetired;
        private final ThreadGroup group;

        Link(double born, SSLContext context, Executor threads) {
            HttpClient.Builder builder = HttpClient.newBuilder()
                    .version(HttpClient.Version.HTTP_1_1)
                    .connectTimeout(CONNECT_TIMEOUT)
                    .proxy(HttpClient.Builder.NO_PROXY)
                    .executor(threads);
            if (context != null) {
                builder.sslContext(context);
            }
            this.born = born;
            this.group = HAS_CLOSE ? null : new ThreadGroup("odometer-link");
            this.http = HAS_CLOSE ? builder.build() : builtIn(group, builder);
        }

        /**
         * Builds the client in a group of threads. Then its own thread belongs to the group, so
         * that it can be ended, and with it the connections. The group goes with its last thread.
         */
        private static HttpClient builtIn(ThreadGroup group, HttpClient.Builder builder) {
            CompletableFuture<HttpClient> built = new CompletableFuture<>();
            group.setDaemon(true);
            new Thread(group, () -> {
                try {
                    built.complete(builder.build());
                } catch (RuntimeException | Error failure) {
                    built.completeExceptionally(failure);
                }
            }).start();
            return built.join();
        }

        /** Closes all connections. No call may use them. */
        void close() {
            if (!HAS_CLOSE) {
                group.interrupt();
                return;
            }
            try {
                ((AutoCloseable) http).close();
            } catch (Exception error) {
                OdometerClient.LOG.log(System.Logger.Level.WARNING, "connections stay open", error);
            }
        }
    }

    /** Collects the body of a reply. It is null if there are too many bytes. */
    private static final class Body
            implements HttpResponse.BodyHandler<byte[]>, HttpResponse.BodySubscriber<byte[]> {
        private static final int MAX_BYTES = 64 * 1024 * 1024;

        private final CompletableFuture<byte[]> whole = new CompletableFuture<>();
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private volatile Flow.Subscription subscription;

        void cancel() {
            whole.cancel(false);
            if (subscription != null) {
                subscription.cancel();
            }
        }

        @Override
        public HttpResponse.BodySubscriber<byte[]> apply(HttpResponse.ResponseInfo head) {
            HttpHeaders headers = head.headers();
            // Without a length, the end of a connection could pass for the end of the body.
            if (headers.firstValue("Content-Length").isEmpty()
                    && headers.firstValue("Transfer-Encoding").isEmpty()) {
                whole.completeExceptionally(new IOException("the reply does not say its length"));
            }
            return this;
        }

        @Override
        public CompletionStage<byte[]> getBody() {
            return whole;
        }

        @Override
        public void onSubscribe(Flow.Subscription given) {
            subscription = given;
            if (whole.isDone()) {
                given.cancel();
            } else {
                given.request(Long.MAX_VALUE);
            }
        }

        @Override
        public void onNext(List<ByteBuffer> parts) {
            for (ByteBuffer part : parts) {
                if (bytes.size() + part.remaining() > MAX_BYTES) {
                    whole.complete(null);
                    subscription.cancel();
                    return;
                }
                byte[] copy = new byte[part.remaining()];
                part.get(copy);
                bytes.write(copy, 0, copy.length);
            }
        }

        @Override
        public void onError(Throwable error) {
            whole.completeExceptionally(error);
        }

        @Override
        public void onComplete() {
            whole.complete(bytes.toByteArray());
        }
    }
}
