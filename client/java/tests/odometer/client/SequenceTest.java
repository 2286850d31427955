package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.code;
import static odometer.client.Tests.equal;
import static odometer.client.Tests.thrown;
import static odometer.client.Tests.until;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executor;
import odometer.client.OdometerClient.Empty;
import odometer.client.OdometerClient.Flight;
import odometer.client.OdometerClient.Hooks;
import odometer.client.OdometerClient.Kind;
import odometer.client.OdometerClient.OdometerException;
import odometer.client.OdometerClient.Run;
import odometer.client.OdometerClient.Sequence;
import odometer.client.Tests.Test;

/** Tests who gets which number, and the one refill in flight. The tests are the refill. */
final class SequenceTest {
    static final OdometerException LOST = OdometerException.unreachable("a", null);
    static final OdometerException GONE = new OdometerException(
            "sequence_retired", "It is.", null, "a", 410, 0, 0);

    private double now = 1000;
    private final List<String> drops = new CopyOnWriteArrayList<>();
    private final List<Runnable> attempts = new CopyOnWriteArrayList<>();
    private Error noThread;
    /** Tells hooks at once, and leaves the refills to the test. */
    private final Executor threads = work -> {
        if (work instanceof CompletableFuture.AsynchronousCompletionTask) {
            work.run();
        } else if (noThread != null) {
            throw noThread;
        } else {
            attempts.add(work);
        }
    };
    private final OdometerClient.Builder options = OdometerClient.builder()
            .deadline(Duration.ofSeconds(10))
            .hooks(new Hooks() {
                @Override
                public void dropped(long count, String cause) {
                    drops.add(count + " " + cause);
                }
            });
    private OdometerClient client = new OdometerClient(options, () -> now, threads);
    private Sequence orders = client.sequence("orders");

    /** Lets the first flight learn that the sequence is buffered. */
    private void learn() {
        thrown(Empty.class, orders::take);
        orders.deliver(orders.flight, Kind.BUFFERED, List.of(), now);
    }

    private static Run run(long first, long count) {
        return new Run(first, 1, count, null);
    }

    private void give(long first, long count) {
        check(orders.wanted(orders.flight) > 0, "nothing is wanted");
        orders.deliver(orders.flight, Kind.BUFFERED, List.of(run(first, count)), now);
    }

    private void take(int count) {
        for (int i = 0; i < count; i++) {
            orders.take();
        }
    }

    private Caller waiting() throws Exception {
        return Caller.waiting(orders::next);
    }

    @Test
    void aTakeFromNothingStartsOneRefill() {
        for (int i = 0; i < 5; i++) {
            thrown(Empty.class, orders::take);
        }
        equal(attempts.size(), 1);
        learn();
        equal(attempts.size(), 2);
        give(1, 100);
        equal(orders.flight, null);
        equal(orders.take(), 1L);
        equal(attempts.size(), 2);
    }

    @Test
    void aPrefetchStartsBelowTwentyPerCentAndOnce() {
        learn();
        give(1, 100);
        take(80);
        equal(orders.flight, null);
        take(2);
        equal(attempts.size(), 3);
    }

    @Test
    void aPrefetchStartsEarlierIfRefillsAreSlow() {
        learn();
        now += 2;
        give(1, 1000);
        // 100 a second: the next refill, of 2 s, must start when 400 are left.
        for (int taken = 0; taken < 590; taken++) {
            now += 0.01;
            take(1);
        }
        equal(orders.flight, null);
        take(20);
        check(orders.flight != null, "no prefetch");
    }

    @Test
    void aRefillLastsFromItsFirstAttemptToItsNumbers() {
        learn();
        orders.wanted(orders.flight);
        orders.failed(orders.flight, LOST);
        now += 2;
        give(1, 1000);
        for (int taken = 0; taken < 610; taken++) {
            now += 0.01;
            take(1);
        }
        check(orders.flight != null, "no prefetch");
    }

    @Test
    void thereAreTwoBlocksAtMost() {
        learn();
        give(1, 100);
        take(85);
        give(101, 1);
        take(10);
        equal(orders.flight, null);
        take(6);
        check(orders.flight != null, "no prefetch");
    }

    @Test
    void aRefillAsksForTheNumbersOfTenSeconds() {
        learn();
        equal(orders.wanted(orders.flight), 100L);
        give(1, 100);
        for (int taken = 0; taken < 81; taken++) {
            now += 0.1;
            take(1);
        }
        long size = orders.wanted(orders.flight);
        check(size > 90 && size < 110, size);
        check(orders.rate() > 9 && orders.rate() < 11, orders.rate());
        now += 20;
        equal(orders.rate(), 0.0);
    }

    @Test
    void waitersAreServedInOrderAndNewCallersDoNotOvertake() throws Exception {
        learn();
        List<Caller> callers = new ArrayList<>(List.of(waiting(), waiting(), waiting()));
        thrown(Empty.class, orders::take);
        give(1, 2);
        equal(orders.left(), 0L);
        callers.add(waiting());
        give(3, 9);
        for (int at = 0; at < 4; at++) {
            equal(callers.get(at).outcome(), "" + (at + 1));
        }
    }

    @Test
    void aRefillAsksForAsManyAsWait() throws Exception {
        learn();
        give(1, 1);
        take(1);
        for (int i = 0; i < 3; i++) {
            waiting();
        }
        equal(orders.wanted(orders.flight), 3L);
    }

    @Test
    void givingUpCostsNobodyANumberAndEndsNoRefill() throws Exception {
        learn();
        Caller first = waiting();
        Caller second = waiting();
        first.interrupt();
        equal(first.outcome(), "interrupted");
        give(1, 100);
        equal(second.outcome(), "1");
        equal(orders.take(), 2L);
    }

    @Test
    void aNumberThatComesAtTheLastMomentIsGiven() throws Exception {
        learn();
        Caller caller = waiting();
        synchronized (orders) {
            caller.interrupt();
            until("the caller gives up", caller::isBlocked);
            give(1, 100);
        }
        equal(caller.outcome(), "1");
        equal(orders.take(), 2L);
    }

    @Test
    void aNumberThatComesJustBeforeForgetIsReplacedByOneFromAfterwards() throws Exception {
        learn();
        Caller caller = waiting();
        synchronized (orders) {
            caller.interrupt();
            until("the caller gives up", caller::isBlocked);
            give(1, 100);
            client.forget();
            thrown(Empty.class, orders::take);
            give(101, 100);
        }
        equal(caller.outcome(), "101");
        equal(drops, List.of("99 forget", "1 forget"));
    }

    @Test
    void aFailedRefillIsNotInFlightAnyMore() {
        learn();
        for (OdometerException failure : List.of(
                GONE, new OdometerException("client", "a defect", null))) {
            Flight failed = orders.flight;
            orders.failed(failed, failure);
            equal(orders.flight, null);
            equal(thrown(Empty.class, orders::take).getCause(), failure);
            check(orders.flight != failed, "no other flight");
        }
    }

    @Test
    void aRefillThatHangsIsReplacedAfterTenCalls() {
        learn();
        Flight lost = orders.flight;
        orders.wanted(lost);
        now += 69;
        thrown(Empty.class, orders::take);
        equal(orders.flight, lost);
        now += 2;
        thrown(Empty.class, orders::take);
        check(orders.flight != lost, "it is not replaced");
        orders.deliver(lost, Kind.BUFFERED, List.of(run(1, 100)), now);
        give(101, 100);
        equal(orders.take(), 101L);
        equal(drops, List.of("100 late"));
    }

    @Test
    void aThreadThatNeverStartsIsReplaced() {
        learn();
        Flight lost = orders.flight;
        now += 0.9;
        thrown(Empty.class, orders::take);
        equal(orders.flight, lost);
        now += 0.2;
        thrown(Empty.class, orders::take);
        check(orders.flight != lost, "it is not replaced");
        equal(orders.wanted(lost), 0L);
        give(1, 100);
        equal(orders.take(), 1L);
    }

    @Test
    void withoutAThreadCallersGetAnErrorAndTheNextOneTriesAgain() {
        noThread = new OutOfMemoryError("no thread");
        equal(code(orders::next), "client");
        equal(code(orders::take), "empty");
        noThread = null;
        learn();
        give(1, 100);
        equal(orders.take(), 1L);
    }

    @Test
    void aRefillIsTriedAgainAndEndsIfNobodyWaits() throws Exception {
        learn();
        for (int nFailures = 1; nFailures <= 10; nFailures++) {
            orders.failed(orders.flight, LOST);
            equal(orders.flight != null, nFailures < 10);
        }
        Caller caller = waiting();
        for (int nFailures = 1; nFailures <= 25; nFailures++) {
            orders.failed(orders.flight, LOST);
            check(orders.flight != null, "it gave up");
        }
        equal(caller.isDone(), false);
    }

    @Test
    void afterARefusalATakeWaitsOutAPauseAndACallerWhoWaitsDoesNot() throws Exception {
        learn();
        orders.failed(orders.flight, GONE);
        thrown(Empty.class, orders::take);
        Flight paused = orders.flight;
        check(paused.startsAt > now && paused.startsAt <= now + 0.05, paused.startsAt);
        waiting();
        equal(orders.flight.startsAt, now);
        equal(orders.wanted(paused), 0L);
        check(orders.wanted(orders.flight) > 0, "nothing is wanted");
    }

    @Test
    void afterAFailureAllWaitOutThePause() throws Exception {
        learn();
        orders.failed(orders.flight, LOST);
        Flight paused = orders.flight;
        check(paused.startsAt > now, "it does not wait");
        waiting();
        equal(orders.flight, paused);
    }

    @Test
    void aRefusalReachesAllWhoWait() throws Exception {
        learn();
        List<Caller> callers = List.of(waiting(), waiting(), Caller.waiting(() -> {
            orders.warm(5, Duration.ofSeconds(10));
            return "warm";
        }));
        orders.failed(orders.flight, GONE);
        for (Caller caller : callers) {
            equal(caller.outcome(), "sequence_retired");
        }
    }

    @Test
    void aSuccessEndsTheSeriesOfFailures() {
        learn();
        for (int i = 0; i < 9; i++) {
            orders.failed(orders.flight, LOST);
        }
        give(1, 1);
        take(1);
        orders.failed(orders.flight, LOST);
        check(orders.flight != null, "it is the tenth failure");
    }

    @Test
    void whatWasOnItsWayIsDroppedByForget() throws Exception {
        learn();
        Caller caller = waiting();
        Flight old = orders.flight;
        client.forget();
        check(orders.flight != null && orders.flight != old, "no new refill");
        orders.deliver(old, Kind.BUFFERED, List.of(run(1, 100)), now);
        equal(drops, List.of("100 forget"));
        equal(caller.isDone(), false);
        give(101, 100);
        equal(caller.outcome(), "101");
        client.forget();
        equal(drops, List.of("100 forget", "99 forget"));
        equal(orders.flight, null);
    }

    @Test
    void forgettingEndsPausesAlsoIfTheClockFell() {
        learn();
        for (int i = 0; i < 9; i++) {
            orders.failed(orders.flight, LOST);
        }
        now = -1e6;
        client.forget();
        thrown(Empty.class, orders::take);
        equal(orders.flight.startsAt, now);
        equal(orders.wanted(orders.flight), 100L);
    }

    @Test
    void oldNumbersAreDropped() {
        client = new OdometerClient(
                options.maxAge(Duration.ofSeconds(10)), () -> now, threads);
        orders = client.sequence("orders");
        learn();
        double asked = now;
        now += 3;
        orders.deliver(orders.flight, Kind.BUFFERED, List.of(run(1, 100)), asked);
        now += 6.9;
        equal(orders.take(), 1L);
        now += 0.2;
        equal(orders.left(), 0L);
        thrown(Empty.class, orders::take);
        equal(drops, List.of("99 max_age"));
    }

    @Test
    void theNumberThatWasTakenToLearnIsAsOldAsItsCall() {
        client = new OdometerClient(
                options.maxAge(Duration.ofSeconds(10)), () -> now, threads);
        orders = client.sequence("orders");
        thrown(Empty.class, orders::take);
        orders.deliver(orders.flight, Kind.BUFFERED, List.of(run(1, 1)), now - 11);
        thrown(Empty.class, orders::take);
        equal(drops, List.of("1 max_age"));
    }

    @Test
    void aWarmStartWaitsForItsCount() throws Exception {
        learn();
        Caller caller = Caller.waiting(() -> {
            orders.warm(250, Duration.ofSeconds(10));
            return "warm";
        });
        equal(orders.wanted(orders.flight), 250L);
        give(1, 200);
        equal(caller.isDone(), false);
        equal(orders.wanted(orders.flight), 50L);
        give(201, 50);
        equal(caller.outcome(), "warm");
        orders.warm(250, Duration.ofSeconds(10));
    }

    @Test
    void numbersThatCannotBeBufferedAreForWhoWaitsAndNotKept() throws Exception {
        Caller caller = waiting();
        orders.deliver(orders.flight, Kind.UNBUFFERED, List.of(run(1, 3)), now);
        equal(caller.outcome(), "1");
        equal(drops, List.of("2 late"));
        equal(orders.left(), 0L);
        equal(orders.flight, null);
    }

    @Test
    void whatAForgottenFlightLearnsIsKept() throws Exception {
        Caller caller = Caller.waiting(() -> {
            orders.warm(1, Duration.ofSeconds(10));
            return "warm";
        });
        Flight old = orders.flight;
        client.forget();
        orders.deliver(old, Kind.UNBUFFERED, List.of(run(1, 1)), now);
        equal(caller.outcome(), "warm");
        equal(drops, List.of("1 forget"));
        // The present flight has nothing to do.
        orders.attempt(orders.flight);
        equal(orders.flight, null);
    }

    @Test
    void aSequenceThatIsUnbufferedStaysSo() {
        thrown(Empty.class, orders::take);
        Flight old = orders.flight;
        client.forget();
        thrown(Empty.class, orders::take);
        orders.deliver(orders.flight, Kind.UNBUFFERED, List.of(), now);
        orders.deliver(old, Kind.BUFFERED, List.of(run(1, 1)), now);
        equal(orders.flight, null);
    }

    @Test
    void idsStayWithTheirNumbers() {
        learn();
        orders.deliver(orders.flight, Kind.BUFFERED, List.of(
                new Run(1, 5, 2, List.of("a", "b")), new Run(100, 1, 1, List.of("c"))), now);
        equal(orders.takeId() + orders.take() + orders.takeId(), "a6c");
    }
}
