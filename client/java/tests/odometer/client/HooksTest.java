package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.code;
import static odometer.client.Tests.equal;
import static odometer.client.Tests.thrown;
import static odometer.client.Tests.until;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import odometer.client.OdometerClient.Empty;
import odometer.client.OdometerClient.Hooks;
import odometer.client.OdometerClient.Kind;
import odometer.client.OdometerClient.Run;
import odometer.client.OdometerClient.Sequence;
import odometer.client.Tests.Test;

/** Tests hooks of programs, which may fail, be slow, or take numbers. */
final class HooksTest implements AutoCloseable {
    private static final Duration LONG = Duration.ofSeconds(10);
    private static final String HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    private final StubService stub = new StubService();
    private final CountDownLatch gate = new CountDownLatch(1);
    private final List<String> told = new CopyOnWriteArrayList<>();
    private OdometerClient client;

    HooksTest() throws IOException {}

    @Override
    public void close() throws IOException {
        gate.countDown();
        client.close();
        stub.close();
    }

    private Sequence with(Hooks hooks) {
        client = OdometerClient.builder(stub.url).deadline(LONG).maxAge(Duration.ofSeconds(60))
                .hooks(hooks).build();
        return client.sequence("orders");
    }

    /** Hooks that all do the same. */
    private abstract static class AllHooks implements Hooks {
        abstract void work(String name);

        @Override
        public void refill(String sequence, String endpoint, String outcome, double seconds,
                long count) {
            work("refill");
        }

        @Override
        public void waited(double seconds) {
            work("waited");
        }

        @Override
        public void dropped(long count, String cause) {
            work("dropped");
        }
    }

    private void takesAndForgets(Sequence orders) {
        equal(orders.next(), 1L);
        client.forget();
        equal(orders.next(), 101L);
        equal(orders.nextIn("x"), 201L);
    }

    @Test
    void hooksThatFailHarmNothing() throws Exception {
        takesAndForgets(with(new AllHooks() {
            @Override
            void work(String name) {
                told.add(name);
                throw new NoClassDefFoundError("of a library for metrics");
            }

            @Override
            public Span span(String sequence) {
                work("span");
                return null;
            }
        }));
        until("all are told", () -> told.contains("dropped") && told.contains("waited")
                && told.indexOf("refill") != told.lastIndexOf("refill"));
    }

    @Test
    void hooksThatAreSlowDelayNobody() throws Exception {
        takesAndForgets(with(new AllHooks() {
            @Override
            void work(String name) {
                told.add(name);
                TransportTest.awaited(gate);
            }
        }));
        until("one is told", () -> told.size() == 1);
        gate.countDown();
        until("all are told, one after the other", () -> told.size() >= 6);
    }

    @Test
    void hooksThatWaitForASlowOneAreBounded() throws Exception {
        AtomicInteger nTold = new AtomicInteger();
        AtomicLong last = new AtomicLong();
        Hooks slow = new Hooks() {
            @Override
            public void dropped(long count, String cause) {
                // The test waits for `last`, and reads the number then.
                nTold.incrementAndGet();
                last.set(count);
                TransportTest.awaited(gate);
            }
        };
        ExecutorService teller = Executors.newSingleThreadExecutor();
        // The test is the refill.
        client = new OdometerClient(OdometerClient.builder().hooks(slow), OdometerClient::now,
                work -> {
                    if (work instanceof CompletableFuture.AsynchronousCompletionTask) {
                        teller.execute(work);
                    }
                });
        drops(1);
        until("one is told", () -> nTold.get() == 1);
        for (long count = 2; count <= 10_100; count++) {
            drops(count);
        }
        gate.countDown();
        until("there is room", () -> nTold.get() > 1);
        drops(20_000);
        until("the last one is told", () -> last.get() == 20_000);
        equal(nTold.get(), 10_002);
        teller.shutdown();
    }

    /** Lets the client drop so many numbers. */
    private void drops(long count) {
        Sequence orders = client.sequence("orders");
        thrown(Empty.class, orders::take);
        orders.deliver(orders.flight, Kind.BUFFERED, List.of(new Run(1, 1, count, null)),
                OdometerClient.now());
        client.forget();
    }

    @Test
    void hooksMayTakeNumbers() throws Exception {
        Sequence[] orders = {null};
        orders[0] = with(new AllHooks() {
            @Override
            void work(String name) {
                if (told.size() < 200) {
                    told.add(name + orders[0].next());
                }
            }
        });
        equal(orders[0].next(), 1L);
        until("the hooks have numbers", () -> told.size() >= 2);
        equal(told.get(0).replaceAll("[a-z]", ""), "2");
    }

    private String sent(String call) {
        return stub.headers.get(stub.calls.indexOf(call)).get("traceparent");
    }

    private void surrounds(Sequence orders, String header) throws Exception {
        equal(orders.next(), 1L);
        String given = sent("POST next?count=100&ids=false");
        check(given.matches(header), given);
        until("the span has ended", () -> told.contains("ended null"));
    }

    /** A span that says what it is told. */
    private final class Recorded implements Hooks.Span {
        private final String header;
        private boolean isRead;

        Recorded(String header) {
            this.header = header;
        }

        @Override
        public String traceparent() {
            if (isRead) {
                told.add("it is read twice");
            }
            isRead = true;
            return header;
        }

        @Override
        public void end(RuntimeException failure) {
            told.add("ended " + (failure == null ? null : failure.getMessage()));
        }
    }

    private Hooks spans(String header) {
        return new Hooks() {
            @Override
            public Span span(String sequence) {
                told.add(sequence);
                return new Recorded(header);
            }
        };
    }

    @Test
    void aSpanOfTheProgramSurroundsARefill() throws Exception {
        surrounds(with(spans(HEADER)), HEADER);
        equal(told.get(0), "orders");
    }

    @Test
    void aSpanThatEndsByAFailureIsToldWhich() throws Exception {
        stub.answer = call -> call.startsWith("GET") ? null
                : StubService.refusal(410, "sequence_retired");
        Sequence orders = with(spans(HEADER));
        equal(code(orders::next), "sequence_retired");
        until("the span has ended", () -> told.size() == 2);
        check(told.get(1).contains("sequence_retired"), told);
        equal(code(() -> orders.nextIn("x")), "sequence_retired");
        until("the span has ended", () -> told.size() == 4);
    }

    @Test
    void aSpanWhoseHeaderIsWrongHasADefaultHeader() throws Exception {
        for (String wrong : new String[] {null, "", "x\r\nX-Y: 1", "00-1-2-01", HEADER + "-"}) {
            try (StubService own = new StubService();
                    OdometerClient other = OdometerClient.builder(own.url).deadline(LONG)
                            .hooks(spans(wrong)).build()) {
                equal(other.sequence("orders").nextIn("x"), 1L);
                String given = own.headers.get(0).get("traceparent");
                check(given.matches("00-[0-9a-f]{32}-[0-9a-f]{16}-00"), given);
            }
        }
        surrounds(with(spans("wrong")), "00-[0-9a-f]{32}-[0-9a-f]{16}-00");
    }
}
