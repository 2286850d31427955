package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.code;
import static odometer.client.Tests.equal;
import static odometer.client.Tests.until;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import odometer.client.OdometerClient.Hooks;
import odometer.client.OdometerClient.Sequence;
import odometer.client.Tests.Test;

/** Tests the ends of a client: a copy of its process goes on, or it is closed. */
final class ForgetTest implements AutoCloseable {
    private static final Duration LONG = Duration.ofSeconds(10);

    private final StubService stub = new StubService();
    private final List<String> drops = new CopyOnWriteArrayList<>();
    private final CountDownLatch gate = new CountDownLatch(1);
    private final OdometerClient client = OdometerClient.builder(stub.url).deadline(LONG)
            .hooks(new Hooks() {
                @Override
                public void dropped(long count, String cause) {
                    drops.add(count + " " + cause);
                }
            }).build();
    private final Sequence orders = client.sequence("orders");

    ForgetTest() throws IOException {}

    @Override
    public void close() throws IOException {
        gate.countDown();
        client.close();
        stub.close();
    }

    private void holdTheFirst() {
        stub.answer = call -> {
            if (stub.posts().size() == 1) {
                TransportTest.awaited(gate);
            }
            return null;
        };
    }

    @Test
    void whatIsForgottenIsNotGivenAndCallsGoOverANewConnection() throws Exception {
        orders.warm(100, LONG);
        equal(orders.next(), 1L);
        client.forget();
        check(orders.next() > 100, "a number of before");
        until("the numbers are reported", () -> drops.equals(List.of("99 forget")));
        equal(stub.nOpened.get(), 2);
        untilAConnectionIsClosed();
    }

    private void untilAConnectionIsClosed() throws Exception {
        until("the first connection is closed", () -> {
            // Before JDK 21 this closes it.
            System.gc();
            return stub.nClosed.get() == 1;
        });
    }

    @Test
    void aHookThatHangsKeepsNoConnectionOpen() throws Exception {
        Hooks hanging = new Hooks() {
            @Override
            public void waited(double seconds) {
                TransportTest.awaited(gate);
            }
        };
        try (OdometerClient other = OdometerClient.builder(stub.url).deadline(LONG)
                .hooks(hanging).build()) {
            other.sequence("orders").next();
            other.forget();
            untilAConnectionIsClosed();
            gate.countDown();
        }
    }

    @Test
    void aCallThatHasOnlyBegunOpensNoConnectionAfterClose() throws Exception {
        CountDownLatch begun = new CountDownLatch(1);
        Hooks slow = new Hooks() {
            @Override
            public Span span(String sequence) {
                begun.countDown();
                TransportTest.awaited(gate);
                return null;
            }
        };
        OdometerClient other = OdometerClient.builder(stub.url).deadline(LONG).hooks(slow).build();
        Caller caller = Caller.of(() -> other.sequence("orders").nextIn("x"));
        begun.await();
        other.close();
        gate.countDown();
        equal(caller.outcome(), "client");
        equal(stub.nOpened.get(), 0);
    }

    @Test
    void forgettingWithoutWaitersStartsNoRefill() {
        orders.warm(100, LONG);
        client.forget();
        equal(orders.flight, null);
    }

    @Test
    void theNumberOfACallInFlightIsForgottenToo() throws Exception {
        holdTheFirst();
        Caller caller = Caller.of(() -> orders.nextIn("x"));
        until("the call has come", () -> stub.posts().size() == 1);
        client.forget();
        gate.countDown();
        equal(caller.outcome(), "2");
        until("the number is reported", () -> drops.equals(List.of("1 forget")));
    }

    @Test
    void theRangeOfACallInFlightIsForgottenToo() throws Exception {
        holdTheFirst();
        Caller caller = Caller.of(() -> orders.range(7).sum());
        until("the call has come", () -> stub.posts().size() == 1);
        client.forget();
        gate.countDown();
        equal(caller.outcome(), "77");
        until("the range is reported", () -> drops.equals(List.of("7 forget")));
    }

    @Test
    void aCallerWhoWaitsGetsANumberFromAfterwards() throws Exception {
        holdTheFirst();
        Caller caller = Caller.waiting(orders::next);
        until("the refill has begun", () -> stub.posts().size() == 1);
        client.forget();
        until("the next refill has begun", () -> stub.posts().size() == 2);
        equal(caller.outcome(), "1");
        gate.countDown();
        until("the late numbers are reported", () -> drops.equals(List.of("100 forget")));
    }

    @Test
    void closingDropsNumbersAndFailsAllFromThenOn() throws Exception {
        orders.warm(100, LONG);
        client.close();
        until("the numbers are reported", () -> drops.equals(List.of("100 close")));
        equal(code(orders::next), "client");
        equal(code(orders::take), "client");
        equal(code(() -> orders.nextIn("x")), "client");
        equal(code(() -> orders.range(3)), "client");
        equal(code(() -> client.sequence("other").next()), "client");
        equal(stub.posts().size(), 1);
    }

    @Test
    void closingFailsWhoWaitsAndStartsNoRefill() throws Exception {
        stub.answer = call -> {
            if (call.startsWith("POST")) {
                TransportTest.awaited(gate);
            }
            return null;
        };
        Caller waiter = Caller.waiting(orders::next);
        Caller called = Caller.of(() -> orders.nextIn("x"));
        until("both calls have come", () -> stub.posts().size() == 2);
        client.close();
        equal(waiter.outcome(), "client");
        gate.countDown();
        equal(called.outcome(), "client");
        until("all numbers are reported", () -> drops.size() == 2);
        check(drops.containsAll(List.of("100 close", "1 close")), drops);
        equal(stub.posts().size(), 2);
    }
}
