package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.code;
import static odometer.client.Tests.equal;
import static odometer.client.Tests.thrown;
import static odometer.client.Tests.until;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.stream.LongStream;
import odometer.client.OdometerClient.Empty;
import odometer.client.OdometerClient.Hooks;
import odometer.client.OdometerClient.Kind;
import odometer.client.OdometerClient.OdometerException;
import odometer.client.OdometerClient.Sequence;
import odometer.client.Tests.Test;

/** Tests whole calls. What all languages must do is in the suite of the repository. */
final class ClientTest implements AutoCloseable {
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
        equal(List.copyOf(stub.calls).subList(0, 2), first);
        check(stub.calls.size() <= 3, stub.calls);
        equal(client.sequence("orders") == orders, true);
    }

    @Test
    void whileTheDatabaseIsAwayItTakesBatches() {
        String away = StubService.refusal(503, "store_unavailable");
        stub.answer = call -> call.contains("blocks") ? away : null;
        orders.warm(11_000, LONG);
        equal(stub.posts(), List.of("POST blocks?size=11000", "POST next?count=10000&ids=false",
                "POST next?count=1000&ids=false"));
    }

    @Test
    void withoutTheRightToBlocksTheyAreAskedForOnce() {
        stub.answer = call -> call.contains("blocks") ? StubService.refusal(403, "forbidden")
                : null;
        orders.warm(25_000, LONG);
        equal(stub.posts(), List.of("POST blocks?size=25000", "POST next?count=10000&ids=false",
                "POST next?count=10000&ids=false", "POST next?count=5000&ids=false"));
    }

    @Test
    void theLastNumbersAreAskedForOneAtATime() {
        String end = StubService.refusal(409, "sequence_exhausted");
        stub.answer = call -> call.contains("count=100&") ? end : null;
        equal(orders.next(), 1L);
        equal(List.copyOf(stub.posts()).subList(0, 2), List.of(
                "POST next?count=100&ids=false", "POST next?count=1&ids=false"));
    }

    @Test
    void aBlockMayBeRefusedForItsRightItsSizeAndItsEnd() {
        stub.answer = call -> call.contains("blocks") ? StubService.refusal(403, "forbidden")
                : call.contains("10000") ? StubService.reply(
                        429, "{\"code\":\"rate_limited\",\"limit\":\"40\"}")
                : call.contains("40") ? StubService.refusal(409, "sequence_exhausted") : null;
        try (OdometerClient large = built(
                OdometerClient.builder(stub.url).deadline(LONG).initialSize(20_000))) {
            equal(large.sequence("orders").next(), 1L);
        }
        equal(List.copyOf(stub.posts()).subList(0, 4), List.of("POST blocks?size=20000",
                "POST next?count=10000&ids=false", "POST next?count=40&ids=false",
                "POST next?count=1&ids=false"));
    }

    @Test
    void aNumberThatWasTakenToLearnIsAccountedForIfNothingIsLearnt() throws Exception {
        stub.answer = call -> !call.startsWith("GET") ? null
                : stub.calls.size() == 1 ? StubService.refusal(404, "sequence_not_found")
                : StubService.refusal(410, "gone");
        equal(code(orders::next), "gone");
        until("it is dropped", () -> reports.contains("dropped 1 late"));
        equal(reports, List.of("ok 1", "gone 0", "dropped 1 late"));
    }

    @Test
    void theDefinitionOfASharedSequenceIsReadByItsOwnName() {
        stub.answer = call -> call.equals("GET mine")
                ? StubService.refusal(404, "sequence_not_found") : null;
        equal(client.sequence("mine").next(), 1L);
        equal(List.copyOf(stub.calls).subList(0, 3),
                List.of("GET mine", "POST next?count=1", "GET orders"));
    }

    @Test
    void aRangeIsOneCallAndUnbroken() {
        stub.step = 7;
        equal(orders.range(3).sum(), LongStream.of(1, 8, 15).sum());
        equal(orders.range(20_000).count(), 20_000L);
        equal(stub.calls, List.of(
                "POST next?count=3&contiguous=true&ids=false", "POST blocks?size=20000"));
        thrown(IllegalArgumentException.class, () -> orders.range(0));
    }

    @Test
    void aRangeOfAnotherSizeIsRefused() throws Exception {
        stub.answer = call -> StubService.reply(200,
                "{\"ranges\":[{\"first\":\"1\",\"last\":\"2\",\"count\":2,\"step\":1}]}");
        equal(code(() -> orders.range(3)), "invalid_reply");
        until("it is reported", () -> reports.equals(List.of("invalid_reply 0")));
    }

    @Test
    void aNumberOfAPeriodIsACallAndNeedsNoLook() {
        equal(orders.nextIn("shop 1"), 1L);
        equal(orders.nextIdIn("a&b"), "#2");
        equal(stub.calls, List.of("POST next?period=shop%201", "POST next?period=a%26b"));
    }

    @Test
    void numbersOfAPeriodAreNotKeptWhateverTheProgramSaid() throws Exception {
        String periodical = StubService.reply(200, "{\"period\":\"2026\",\"ranges\":["
                + "{\"first\":\"1\",\"last\":\"3\",\"count\":3,\"step\":1}],"
                + "\"ids\":[\"a\",\"b\",\"c\"]}");
        stub.answer = call -> call.startsWith("GET") ? StubService.refusal(403, "forbidden")
                : call.contains("count") ? periodical : null;
        Sequence wrong = client.sequence("wrong", Kind.BUFFERED);
        equal(wrong.nextId(), "a");
        equal(wrong.next() + wrong.next(), 3L);
        equal(stub.posts(), List.of("POST next?count=100", "POST next", "POST next"));
        until("the rest is reported", () -> reports.contains("dropped 2 late"));
    }

    @Test
    void theKindMayBeSaidLaterButNotOtherwise() {
        stub.answer = call -> call.startsWith("GET") ? StubService.refusal(403, "forbidden") : null;
        equal(client.sequence("orders", Kind.UNBUFFERED), orders);
        equal(client.sequence("orders"), orders);
        thrown(IllegalArgumentException.class, () -> client.sequence("orders", Kind.BUFFERED));
        equal(orders.next() + orders.next(), 3L);
        equal(stub.posts(), List.of("POST next", "POST next"));
    }

    @Test
    void withoutTheRightLookTheErrorSaysWhatToDo() {
        stub.answer = call -> call.startsWith("GET") ? StubService.refusal(403, "forbidden") : null;
        OdometerException failure = thrown(OdometerException.class, orders::next);
        check(failure.getMessage().contains("Kind.BUFFERED"), failure);
    }

    @Test
    void anErrorHasTheStackOfItsCallerAndTheFailureAsCause() {
        stub.answer = call -> StubService.refusal(410, "sequence_retired");
        OdometerException failure = thrown(OdometerException.class, orders::next);
        check(failure.getMessage().contains(stub.url + " answered 410 sequence_retired: The stub"),
                failure);
        List<String> methods = new ArrayList<>();
        for (StackTraceElement element : failure.getStackTrace()) {
            methods.add(element.getMethodName());
        }
        check(methods.contains("next"), methods);
        check(failure.getCause() instanceof OdometerException, failure.getCause());
    }

    @Test
    void anErrorAtTheDeadlineHasTheLastFailureAsCause() throws Exception {
        stub.answer = call -> StubService.CUT;
        try (OdometerClient hasty = OdometerClient.builder(stub.url)
                .deadline(Duration.ofMillis(1)).build()) {
            Sequence lost = hasty.sequence("orders");
            until("a refill has failed", () ->
                    thrown(Empty.class, lost::take).getCause() instanceof OdometerException);
            OdometerException failure = thrown(OdometerException.class, lost::next);
            equal(failure.code(), "deadline");
            equal(((OdometerException) failure.getCause()).code(), "unreachable");
        }
    }

    @Test
    void aCallOfItsOwnEndsAtTheDeadlineToo() throws Exception {
        stub.answer = call -> StubService.refusal(503, "overloaded");
        try (OdometerClient hasty = built(
                OdometerClient.builder(stub.url).deadline(Duration.ofSeconds(4)))) {
            OdometerException failure = thrown(
                    OdometerException.class, () -> hasty.sequence("orders").nextIn("x"));
            equal(failure.code(), "deadline");
            equal(((OdometerException) failure.getCause()).code(), "overloaded");
            until("calls are reported", () -> reports.contains("overloaded 0"));
        }
    }

    @Test
    void aCallOfItsOwnThatHangsIsTriedAgain() throws Exception {
        CountDownLatch gate = new CountDownLatch(1);
        stub.answer = call -> {
            if (stub.posts().size() == 1) {
                TransportTest.awaited(gate);
            }
            return null;
        };
        try (OdometerClient patient = built(OdometerClient.builder(stub.url).deadline(LONG)
                .refillTimeout(Duration.ofSeconds(2)))) {
            check(patient.sequence("orders").nextIn("x") > 0, "no number");
            until("both calls are reported", () -> reports.contains("timeout 0")
                    && reports.contains("ok 1"));
        } finally {
            gate.countDown();
        }
    }

    @Test
    void anInterruptedCallerKeepsItsFlagAndCostsNothing() throws Exception {
        CountDownLatch gate = new CountDownLatch(1);
        stub.answer = call -> {
            TransportTest.awaited(gate);
            return null;
        };
        Caller caller = Caller.of(() -> code(orders::next) + " "
                + Thread.currentThread().isInterrupted());
        until("the refill has begun", () -> !stub.calls.isEmpty());
        caller.interrupt();
        equal(caller.outcome(), "interrupted true");
        gate.countDown();
        equal(orders.next(), 1L);
    }
}
