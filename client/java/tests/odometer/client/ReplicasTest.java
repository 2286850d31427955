package odometer.client;

import static odometer.client.Tests.code;
import static odometer.client.Tests.equal;
import static odometer.client.Tests.until;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import odometer.client.OdometerClient.OdometerException;
import odometer.client.OdometerClient.Sequence;
import odometer.client.Tests.Test;

/**
 * Tests two replicas, of which one is wrong, slow or on its way out.
 *
 * <p>Their clock stands still, so that a replica that rests does so for ever. Tests may move it.
 */
final class ReplicasTest implements AutoCloseable {
    private static final Duration LONG = Duration.ofSeconds(10);

    private volatile double now;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final StubService wrong = new StubService();
    private final StubService right = new StubService();
    private final List<OdometerClient> clients = new ArrayList<>();
    private final CountDownLatch gate = new CountDownLatch(1);

    ReplicasTest() throws IOException {}

    @Override
    public void close() throws IOException {
        gate.countDown();
        clients.forEach(OdometerClient::close);
        threads.shutdownNow();
        wrong.close();
        right.close();
    }

    /** Returns a sequence of a client whose next call goes to the wrong replica. */
    private Sequence beginning(Duration deadline) {
        for (int i = 0; i < 100; i++) {
            OdometerClient client = new OdometerClient(
                    OdometerClient.builder(wrong.url, right.url).deadline(deadline),
                    () -> now, threads);
            clients.add(client);
            Sequence orders = client.sequence("orders");
            int nCalls = wrong.calls.size();
            if (gives(orders) && wrong.calls.size() > nCalls) {
                return orders;
            }
        }
        throw new AssertionError("all clients begin at the same replica");
    }

    private static boolean gives(Sequence orders) {
        try {
            return orders.nextIn("x") > 0;
        } catch (OdometerException late) {
            return false;
        }
    }

    private Sequence beginning() {
        return beginning(LONG);
    }

    /** Counts how many of ten numbers are refused. */
    private int nRefused(Sequence orders) {
        int nRefused = 0;
        for (int i = 0; i < 10; i++) {
            try {
                orders.next();
            } catch (OdometerException refused) {
                nRefused++;
            }
        }
        return nRefused;
    }

    @Test
    void anAddressThatIsNoOdometerIsLeftAfterOneRefusal() {
        for (String answer : List.of(
                StubService.reply(200, "<html>hello</html>"),
                StubService.reply(200, "{\"hello\":\"you\"}"),
                StubService.reply(404, "<html>nothing</html>"),
                StubService.reply(302, ""),
                StubService.refusal(404, "route_not_found"))) {
            wrong.answer = call -> null;
            Sequence orders = beginning();
            wrong.answer = call -> answer;
            wrong.calls.clear();
            equal(nRefused(orders), 1);
            equal(wrong.calls.size(), 1);
        }
    }

    @Test
    void aRefusalOfTheServiceIsNoReasonToLeave() {
        Sequence orders = beginning();
        wrong.answer = call -> StubService.refusal(410, "sequence_retired");
        equal(nRefused(orders), 10);
    }

    @Test
    void aReplicaThatClosesItsConnectionIsLeftAlsoIfItRefuses() {
        String strict = StubService.definition("{value}", "strict");
        for (String answer : List.of(
                StubService.refusal(409, "x"), StubService.reply(200, strict))) {
            wrong.answer = call -> null;
            Sequence orders = beginning();
            wrong.answer = call -> answer.replace("Content-Type", "Connection: close\r\nX");
            wrong.calls.clear();
            nRefused(orders);
            equal(wrong.calls.size(), 1);
        }
    }

    @Test
    void callersInAHurryLeaveAReplicaOnlyIfTheyGetNoReplyForASecond() throws Exception {
        Sequence orders = beginning(Duration.ofMillis(900));
        wrong.answer = call -> {
            TransportTest.awaited(gate);
            return null;
        };
        wrong.calls.clear();
        equal(code(() -> orders.nextIn("x")), "deadline");
        equal(wrong.calls.size(), 1);
        now += 1;
        equal(code(() -> orders.nextIn("x")), "deadline");
        equal(wrong.calls.size(), 2);
        until("the other replica is called", () -> gives(orders));
        equal(wrong.calls.size(), 2);
    }

    /** Lets the right replica leave, after which the other one is called if it does not rest. */
    private void doesNotRest(Sequence orders) throws Exception {
        wrong.answer = call -> null;
        right.answer = call -> StubService.reply(200, "{\"value\":\"1\",\"id\":\"1\"}")
                .replace("Content-Type", "Connection: close\r\nX");
        wrong.calls.clear();
        until("it is called", () -> gives(orders) && !wrong.calls.isEmpty());
    }

    @Test
    void forgettingEndsTheRestsOfReplicas() throws Exception {
        Sequence orders = beginning();
        wrong.answer = call -> StubService.refusal(503, "draining");
        orders.nextIn("x");
        clients.get(clients.size() - 1).forget();
        doesNotRest(orders);
    }

    @Test
    void aReplicaThatIsAwayIsLeftAtOnce() {
        Sequence orders = beginning();
        wrong.answer = call -> StubService.refusal(503, "draining")
                .replace("Content-Type", "Retry-After: 60\r\nX");
        equal(nRefused(orders), 0);
        equal(wrong.calls.size(), 2);
    }
}
