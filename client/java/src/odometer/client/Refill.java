package odometer.client;

import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import odometer.client.OdometerClient.CallFailed;
import odometer.client.OdometerClient.Hooks;
import odometer.client.OdometerClient.Kind;
import odometer.client.OdometerClient.OdometerException;
import odometer.client.OdometerClient.SafeHooks;
import odometer.client.Stock.Flight;
import odometer.client.Stock.Run;

/** Fills one sequence's stock until it has enough, in one thread at a time. Times are seconds. */
final class Refill {
    /** The most numbers that one call of `next` gives. */
    private static final int MAX_COUNT = 10_000;
    private static final Set<String> SIZE_CODES = Set.of("invalid_count", "confirm_needed");

    /** Why a smaller size may succeed. Each reason counts once a refill. */
    private enum Reason { RIGHT, LIMIT, END }

    final Stock stock;
    private final String name;
    private final Paths paths;
    private final Kind said;
    private final Service service;
    private final SafeHooks hooks;
    private final double timeout;
    private final Executor threads;
    private volatile boolean mayReserve = true;

    /** Makes a refill and its stock. The kind may be null. */
    Refill(
            String name,
            Paths paths,
            Kind said,
            Service service,
            SafeHooks hooks,
            OdometerClient.Limits limits,
            Executor threads) {
        this.name = name;
        this.paths = paths;
        this.said = said;
        this.service = service;
        this.hooks = hooks;
        this.timeout = limits.refillTimeout;
        this.threads = threads;
        this.stock = new Stock(
                hooks, limits.initialSize, limits.maxAge, Service::now, this::launch);
    }

    /** What a client must know of a sequence. */
    static final class Definition {
        final boolean isBuffered;
        /** Whether an id is the bare value. If not, or if that is not known, the service prints. */
        final boolean printsValues;

        Definition(boolean isBuffered, boolean printsValues) {
            this.isBuffered = isBuffered;
            this.printsValues = printsValues;
        }
    }

    /** The paths of a sequence's calls. */
    static final class Paths {
        private final String base;
        private final String period;

        Paths(String name, String period) {
            this.base = of(name);
            this.period = period == null ? "" : "period=" + encoded(period);
        }

        static String of(String name) {
            return "/v1/sequences/" + encoded(name).replace("%3A", ":");
        }

        String one() {
            return base + "/next" + (period.isEmpty() ? "" : "?" + period);
        }

        String batch(long count, boolean withIds) {
            return with("/next?count=" + count + (withIds ? "" : "&ids=false"));
        }

        String block(long size) {
            return with("/blocks?size=" + size);
        }

        String unbroken(long count) {
            boolean isBlock = count > MAX_COUNT;
            return isBlock ? block(count)
                    : with("/next?count=" + count + "&contiguous=true&ids=false");
        }

        private String with(String call) {
            return base + call + (period.isEmpty() ? "" : "&" + period);
        }

        private static String encoded(String text) {
            return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
        }
    }

    private void launch(Flight flight) {
        try {
            threads.execute(() -> run(flight));
        } catch (RuntimeException | OutOfMemoryError noThread) {
            OdometerClient.LOG.log(System.Logger.Level.WARNING, "no thread for a refill", noThread);
            stock.end(flight, noThread);
        }
    }

    private void run(Flight flight) {
        Throwable failure = null;
        try {
            fill(flight);
        } catch (InterruptedException | RuntimeException | Error error) {
            String what = "a refill of " + name + " failed";
            OdometerClient.LOG.log(System.Logger.Level.ERROR, what, error);
            failure = error;
        } finally {
            stock.end(flight, failure);
        }
    }

    private void fill(Flight flight) throws InterruptedException {
        long pause = Service.nanos(stock.firstPause(flight));
        flight.hurry.await(pause, TimeUnit.NANOSECONDS);
        // Of this flight alone: a flight that was forgotten may still learn.
        Learner learner = new Learner();
        boolean hasFailed = false;
        double began = Double.NaN;
        try {
            for (long size = stock.wanted(flight); size > 0; size = stock.wanted(flight)) {
                double asked = Service.now();
                began = Double.isNaN(began) ? asked : began;
                try {
                    if (stock.definition() == null) {
                        learner.learn(flight);
                    } else {
                        List<Run> runs = fetch(stock.definition(), size, hasFailed);
                        stock.deliver(flight, runs, asked, began);
                        began = Double.NaN;
                    }
                    hasFailed = false;
                } catch (OdometerException error) {
                    OptionalDouble next = stock.failed(flight, error, service.endpoints.isSole());
                    if (next.isEmpty()) {
                        return;
                    }
                    hasFailed = true;
                    TimeUnit.NANOSECONDS.sleep(Service.nanos(next.getAsDouble()));
                }
            }
        } finally {
            hooks.dropped(Stock.countOf(learner.taken), "late");
        }
    }

    /**
     * Gets numbers with one call, or with another one if the size was refused.
     *
     * <p>If the call before failed, the database may be away, and then `next` still has numbers.
     */
    private List<Run> fetch(Definition definition, long wanted, boolean hasFailed) {
        double began = Service.now();
        boolean withIds = !definition.printsValues;
        boolean mustBeBatch = withIds || hasFailed || !mayReserve;
        long size = mustBeBatch ? Math.min(wanted, MAX_COUNT) : wanted;
        Set<Reason> reasons = EnumSet.noneOf(Reason.class);
        Hooks.Span span = hooks.span(name);
        while (true) {
            try {
                Reply reply = ask(size, withIds, span);
                checkNoPeriod(reply);
                List<Run> runs = reply.runs(withIds);
                hooks.end(span, null);
                String outcome = reasons.isEmpty() ? "ok" : "resized";
                report(reply.endpoint, outcome, began, Stock.countOf(runs));
                return runs;
            } catch (CallFailed failure) {
                Reason reason = reasonForLess(failure, size);
                if (reason == null || !reasons.add(reason)) {
                    hooks.end(span, failure);
                    report(failure.endpoint(), failure.code(), began, 0);
                    throw failure;
                }
                size = smaller(reason, failure);
            } catch (RuntimeException error) {
                hooks.end(span, error);
                throw error;
            }
        }
    }

    private Reply ask(long size, boolean withIds, Hooks.Span span) {
        String path = size > MAX_COUNT ? paths.block(size) : paths.batch(size, withIds);
        return service.ask("POST", path, timeout, span.traceparent(), false);
    }

    /** Returns why a smaller size may succeed, or null. */
    private Reason reasonForLess(CallFailed failure, long size) {
        int status = failure.status();
        if (status == 403 && size > MAX_COUNT) {
            mayReserve = false;
            return Reason.RIGHT;
        }
        if (status == 429 || SIZE_CODES.contains(failure.code())) {
            return failure.limit() >= 1 && failure.limit() < size ? Reason.LIMIT : null;
        }
        // The last numbers are issued one at a time.
        return failure.code().equals("sequence_exhausted") && size > 1 ? Reason.END : null;
    }

    private static long smaller(Reason reason, CallFailed failure) {
        switch (reason) {
            case RIGHT:
                return MAX_COUNT;
            case LIMIT:
                return failure.limit();
            default:
                return 1;
        }
    }

    /** Refuses to buffer the numbers of a period, which are wrong in the next one. */
    private void checkNoPeriod(Reply reply) {
        if (reply.body.get("period") != null) {
            throw new OdometerException("client", "the sequence " + name + " has periods, so its "
                    + "numbers cannot be buffered: say Kind.UNBUFFERED", null);
        }
    }

    private void report(String endpoint, String outcome, double began, long count) {
        hooks.refill(name, endpoint, outcome, Service.now() - began, count);
    }

    /** Finds out what the sequence is. It can try again after a failure. */
    private final class Learner {
        /** Numbers that had to be taken first, and that nobody has yet. */
        List<Run> taken = List.of();
        /** A template may share another sequence's numbers: then that one has the definition. */
        private String owner = name;
        private boolean hasTaken;

        void learn(Flight flight) {
            double began = Service.now();
            Definition definition;
            try {
                definition = read();
            } catch (CallFailed failure) {
                report(failure.endpoint(), failure.code(), began, 0);
                throw failure;
            }
            List<Run> runs = taken;
            taken = List.of();
            stock.learned(flight, definition, runs);
        }

        private Definition read() {
            try {
                return definition(look());
            } catch (CallFailed refusal) {
                if (refusal.status() == 403 && said == null) {
                    throw refusal.with("Without the right `look`, say the kind: Kind.BUFFERED, or "
                            + "Kind.UNBUFFERED for strict, period and time-ordered sequences.");
                }
                if (refusal.status() != 403) {
                    throw refusal;
                }
                return new Definition(said == Kind.BUFFERED, false);
            }
        }

        /** Reads the definition. A name that was never seen is created by its first number. */
        private Reply look() {
            try {
                return service.ask("GET", Paths.of(owner), timeout, null, false);
            } catch (CallFailed refusal) {
                if (hasTaken || !refusal.code().equals("sequence_not_found")) {
                    throw refusal;
                }
            }
            takeFirst();
            return service.ask("GET", Paths.of(owner), timeout, null, false);
        }

        private void takeFirst() {
            double began = Service.now();
            Hooks.Span span = hooks.span(name);
            try {
                Reply reply = ask(1, true, span);
                taken = reply.runs(true);
                hasTaken = true;
                Object shared = reply.body.get("sequence");
                owner = shared instanceof String ? (String) shared : owner;
                hooks.end(span, null);
                report(reply.endpoint, "ok", began, Stock.countOf(taken));
            } catch (RuntimeException failure) {
                hooks.end(span, failure);
                throw failure;
            }
        }

        private Definition definition(Reply reply) {
            Object given = reply.body.get("definition");
            if (!(given instanceof Map)) {
                throw CallFailed.invalid(reply.endpoint, "gave no definition");
            }
            Map<?, ?> fields = (Map<?, ?>) given;
            boolean isBuffered = "block".equals(fields.get("kind"))
                    && "relaxed".equals(fields.get("order"))
                    && "none".equals(fields.get("period"));
            return new Definition(isBuffered, "{value}".equals(fields.get("format")));
        }
    }
}
