package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.equal;
import static odometer.client.Tests.thrown;
import static odometer.client.Tests.until;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.logging.Level;
import java.util.logging.Logger;
import odometer.client.OdometerClient.CallFailed;
import odometer.client.OdometerClient.DeadlinePassed;
import odometer.client.OdometerClient.Hooks;
import odometer.client.OdometerClient.Kind;
import odometer.client.OdometerClient.OdometerException;
import odometer.client.Tests.Test;

/** Tests whole calls. What all languages must do is in the suite of the repository. */
final class ClientTest implements AutoCloseable {
    private static final Duration SHORT = Duration.ofSeconds(1);
    /** A busy machine may be slow. */
    private static final Duration LONG = Duration.ofSeconds(10);

    private final StubService stub = new StubService();
    private final List<String> reports = new CopyOnWriteArrayList<>();
    private final OdometerClient client = built(
            OdometerClient.builder(stub.url).deadline(LONG));
    private final Sequence orders = client.sequence("orders");

    ClientTest() throws IOException {}

    private OdometerClient built(OdometerClient.Builder builder) {
        return builder.hooks(new Hooks() {
            @Override
            public void refill(
                    String sequence, String endpoint, String outcome, double seconds, long count) {
                reports.add(outcome + " " + count);
            }

            @Override
            public void dropped(long count, String cause) {
                reports.add("dropped " + count + " " + cause);
            }
        }).build();
    }

    @Override
    public void close() throws IOException {
        client.close();
        stub.close();
    }

    @Test
    void aProgramCallsOnceForManyNumbers() {
        equal(stub.calls, List.of());
        for (long number = 1; number <= 100; number++) {
            equal(orders.next(), number);
        }
        List<String> first = List.of("GET orders", "POST next?count=100&ids=false");
        equal(stub.calls.subList(0, 2), first);
        check(stub.calls.size() <= 3, stub.calls);
        equal(client.sequence("orders") == orders, true);
        equal(client.sequence("orders", null, "2026") == orders, false);
    }

    @Test
    void whileTheDatabaseIsAwayItTakesBatches() {
        String away = StubService.refusal(503, "store_unavailable");
        stub.answer = call -> call.contains("blocks") ? away : null;
        orders.warm(11_000);
        equal(stub.posts(), List.of("POST blocks?size=11000", "POST next?count=10000&ids=false",
                "POST next?count=1000&ids=false"));
    }

    @Test
    void aNumberThatWasTakenToLearnIsAccountedForIfNothingIsLearnt() throws Exception {
        stub.answer = call -> !call.startsWith("GET") ? null : stub.calls.size() == 1
                ? StubService.refusal(404, "sequence_not_found") : StubService.refusal(410, "gone");
        equal(thrown(CallFailed.class, orders::next).code(), "gone");
        until("it is dropped", () -> reports.contains("dropped 1 late"));
        equal(reports, List.of("ok 1", "gone 0", "dropped 1 late"));
    }

    @Test
    void theDefinitionOfASharedSequenceIsReadByItsOwnName() {
        stub.answer = call -> call.equals("GET mine")
                ? StubService.refusal(404, "sequence_not_found") : null;
        equal(client.sequence("mine").next(), 1L);
        equal(stub.calls.subList(0, 3), List.of("GET mine", "POST next?count=1", "GET orders"));
    }

    @Test
    void aRangeIsUnbrokenAndLosesNothing() {
        stub.step = 7;
        orders.warm(100);
        equal(orders.range(3).toString(), "1 to 15 by 7");
        Sequence.Range far = orders.range(500);
        equal(far.first() + " " + far.count() + " " + far.step(), "701 500 7");
        equal(far.values().sum(), far.count() * (far.first() + far.last()) / 2);
        equal(stub.posts().get(1), "POST next?count=500&contiguous=true&ids=false");
        equal(orders.next(), 22L);
        thrown(IllegalArgumentException.class, () -> orders.range(0));
    }

    @Test
    void aRangeOfAnotherSizeIsRefused() {
        stub.answer = call -> call.startsWith("GET") ? null : StubService.reply(200,
                "{\"ranges\":[{\"first\":\"1\",\"last\":\"2\",\"count\":2,\"step\":1}]}");
        equal(thrown(CallFailed.class, () -> orders.range(3)).code(), "invalid_reply");
        equal(reports, List.of("invalid_reply 0"));
    }

    @Test
    void periodsGoWithEachCallAndAreNeverBuffered() {
        stub.definition = StubService.definition("{value}", "relaxed").replace("none", "keyed");
        Sequence shop = client.sequence("orders", null, "shop 1");
        equal(shop.next() + shop.next(), 3L);
        equal(stub.posts(), List.of("POST next?period=shop%201", "POST next?period=shop%201"));
        String periodical = "{\"period\":\"2026\",\"ranges\":[]}";
        stub.answer = call -> call.startsWith("GET") ? StubService.refusal(403, "forbidden")
                : StubService.reply(200, periodical);
        Sequence wrong = client.sequence("wrong", Kind.BUFFERED);
        equal(thrown(OdometerException.class, wrong::next).code(), "client");
    }

    @Test
    void withoutTheRightLookTheErrorSaysWhatToDo() {
        stub.answer = call -> call.startsWith("GET") ? StubService.refusal(403, "forbidden") : null;
        CallFailed failure = thrown(CallFailed.class, orders::next);
        check(failure.getMessage().contains("Kind.BUFFERED"), failure);
    }

    @Test
    void anErrorHasTheStackOfItsCallerAndTheFailureAsCause() {
        stub.answer = call -> StubService.refusal(410, "sequence_retired");
        CallFailed failure = thrown(CallFailed.class, orders::next);
        equal(failure.status() + " " + failure.endpoint(), "410 " + stub.url);
        List<String> methods = new ArrayList<>();
        for (StackTraceElement element : failure.getStackTrace()) {
            methods.add(element.getMethodName());
        }
        check(methods.contains("next"), methods);
        check(failure.getCause() instanceof CallFailed, failure.getCause());
    }

    @Test
    void anErrorAtTheDeadlineHasTheLastFailureAsCause() {
        stub.answer = call -> StubService.CUT;
        try (OdometerClient hasty = OdometerClient.builder(stub.url).deadline(SHORT).build()) {
            DeadlinePassed failure = thrown(DeadlinePassed.class, hasty.sequence("orders")::next);
            equal(((CallFailed) failure.getCause()).code(), "connection");
        }
    }

    @Test
    void aCallOfItsOwnEndsAtTheDeadlineToo() {
        stub.definition = StubService.definition("{value}", "strict");
        try (OdometerClient hasty = built(OdometerClient.builder(stub.url).deadline(SHORT))) {
            Sequence strict = hasty.sequence("orders");
            strict.warm(1, LONG);
            stub.answer = call -> StubService.refusal(503, "overloaded");
            DeadlinePassed failure = thrown(DeadlinePassed.class, strict::next);
            equal(((CallFailed) failure.getCause()).code(), "overloaded");
            equal(reports.get(0), "overloaded 0");
        }
    }

    @Test
    void anInterruptedCallerKeepsItsFlagAndCostsNothing() throws Exception {
        CountDownLatch gate = new CountDownLatch(1);
        stub.answer = call -> {
            TransportTest.awaited(gate);
            return null;
        };
        AtomicReference<String> outcome = new AtomicReference<>();
        Thread caller = new Thread(() -> {
            String code = thrown(OdometerException.class, orders::next).code();
            outcome.set(code + " " + Thread.currentThread().isInterrupted());
        });
        caller.start();
        until("the refill has begun", () -> !stub.calls.isEmpty());
        caller.interrupt();
        caller.join();
        equal(outcome.get(), "interrupted true");
        gate.countDown();
        equal(orders.next(), 1L);
    }

    @Test
    void closingDropsNumbersAndConnections() throws Exception {
        orders.warm(100);
        client.close();
        until("the connection is closed", () -> stub.nClosed.get() == 1);
        equal(reports, List.of("ok 100", "dropped 100 close"));
        equal(orders.next(), 101L);
    }

    @Test
    void hooksThatFailHarmNothing() {
        Hooks failing = new Hooks() {
            @Override
            public void refill(
                    String sequence, String endpoint, String outcome, double seconds, long count) {
                throw new IllegalStateException("on purpose");
            }

            @Override
            public void waited(double seconds) {
                throw new IllegalStateException("on purpose");
            }

            @Override
            public Span span(String sequence) {
                throw new IllegalStateException("on purpose");
            }
        };
        Logger log = Logger.getLogger("odometer.client");
        log.setLevel(Level.OFF);
        try (OdometerClient other = OdometerClient.builder(stub.url).deadline(LONG)
                .hooks(failing).build()) {
            equal(other.sequence("orders").next(), 1L);
        } finally {
            log.setLevel(null);
        }
        String header = stub.headers.get(1).get("traceparent");
        check(header.matches("00-[0-9a-f]{32}-[0-9a-f]{16}-00"), header);
    }

    @Test
    void aSpanOfTheProgramSurroundsARefill() {
        String header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        List<String> ended = new CopyOnWriteArrayList<>();
        Hooks tracing = new Hooks() {
            @Override
            public Span span(String sequence) {
                return new Span() {
                    @Override
                    public String traceparent() {
                        return header;
                    }

                    @Override
                    public void end(RuntimeException failure) {
                        ended.add(sequence + " " + (failure == null ? "ok" : failure.getMessage()));
                    }
                };
            }
        };
        stub.answer = call -> call.startsWith("GET") || stub.posts().size() > 1 ? null
                : StubService.refusal(410, "sequence_retired");
        try (OdometerClient other = OdometerClient.builder(stub.url).deadline(LONG)
                .hooks(tracing).build()) {
            thrown(CallFailed.class, other.sequence("orders")::next);
            equal(other.sequence("orders").next(), 1L);
        }
        equal(stub.headers.get(1).get("traceparent"), header);
        check(ended.get(0).contains("sequence_retired"), ended);
        equal(ended.get(1), "orders ok");
    }
}
