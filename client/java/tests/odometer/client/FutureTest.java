package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.equal;
import static odometer.client.Tests.thrown;
import static odometer.client.Tests.until;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import odometer.client.OdometerClient.CallFailed;
import odometer.client.OdometerClient.DeadlinePassed;
import odometer.client.OdometerClient.Hooks;
import odometer.client.Tests.Test;

/** Tests numbers that callers do not wait for. */
final class FutureTest implements AutoCloseable {
    private final StubService stub = new StubService();
    private final List<String> drops = new CopyOnWriteArrayList<>();
    private final CountDownLatch gate = new CountDownLatch(1);
    private final OdometerClient client = OdometerClient.builder(stub.url)
            .deadline(Duration.ofSeconds(10)).hooks(new Hooks() {
                @Override
                public void dropped(long count, String cause) {
                    drops.add(count + " " + cause);
                }
            }).build();
    private final Sequence orders = client.sequence("orders");

    FutureTest() throws IOException {}

    @Override
    public void close() throws IOException {
        gate.countDown();
        client.close();
        stub.close();
    }

    private void hold() {
        stub.answer = call -> {
            TransportTest.awaited(gate);
            return null;
        };
    }

    private static Throwable failureOf(CompletableFuture<?> future) {
        return thrown(ExecutionException.class, future::get).getCause();
    }

    @Test
    void callersGetNumbersInTheirOrder() throws Exception {
        hold();
        List<CompletableFuture<Long>> asked = new ArrayList<>();
        for (int i = 0; i < 150; i++) {
            asked.add(orders.nextAsync());
        }
        gate.countDown();
        for (int at = 0; at < 150; at++) {
            equal(asked.get(at).get(), at + 1L);
        }
        equal(orders.nextIdAsync().get(), "151");
    }

    @Test
    void whatDependsOnANumberMayWaitForTheNextRefill() throws Exception {
        CompletableFuture<Long> last = orders.nextAsync().thenApply(first -> {
            equal(first, 1L);
            for (int taken = 1; taken < 100; taken++) {
                orders.take();
            }
            return orders.next();
        });
        equal(last.get(), 101L);
    }

    @Test
    void aFailureReachesTheFuture() {
        stub.answer = call -> StubService.refusal(410, "sequence_retired");
        equal(((CallFailed) failureOf(orders.nextAsync())).code(), "sequence_retired");
    }

    @Test
    void aFutureFailsAtTheDeadline() {
        hold();
        try (OdometerClient hasty = OdometerClient.builder(stub.url)
                .deadline(Duration.ofMillis(50)).build()) {
            Throwable failure = failureOf(hasty.sequence("orders").nextAsync());
            check(failure instanceof DeadlinePassed, failure);
        }
    }

    @Test
    void aCancelledFutureTakesNoNumberOfAnotherCaller() throws Exception {
        hold();
        List<CompletableFuture<Long>> asked = List.of(
                orders.nextAsync(), orders.nextAsync(), orders.nextAsync());
        asked.get(0).cancel(true);
        gate.countDown();
        equal(asked.get(1).get() + " " + asked.get(2).get() + " " + orders.next(), "1 2 3");
        equal(drops, List.of());
    }

    @Test
    void theNumberOfACallThatWasCancelledIsDropped() throws Exception {
        stub.definition = StubService.definition("{value}", "strict");
        equal(orders.nextAsync().get(), 1L);
        hold();
        CompletableFuture<Long> asked = orders.nextAsync();
        until("the call has come", () -> stub.posts().size() == 2);
        asked.cancel(true);
        gate.countDown();
        until("its number is dropped", () -> drops.equals(List.of("1 late")));
        equal(orders.nextAsync().get(), 3L);
    }
}
