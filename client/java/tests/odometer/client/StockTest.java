package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.equal;

import java.util.ArrayList;
import java.util.List;
import java.util.OptionalDouble;
import odometer.client.OdometerClient.CallFailed;
import odometer.client.OdometerClient.Hooks;
import odometer.client.OdometerClient.OdometerException;
import odometer.client.OdometerClient.SafeHooks;
import odometer.client.Refill.Definition;
import odometer.client.Stock.Flight;
import odometer.client.Stock.Run;
import odometer.client.Stock.Waiter;
import odometer.client.Tests.Test;

/** Tests who gets which number, and the one refill in flight. The tests are the refill. */
final class StockTest {
    private static final CallFailed LOST = CallFailed.unanswered("http://a", false, null);
    private static final CallFailed GONE = new CallFailed(
            "It is.", "http://a", "sequence_retired", 410, 0, 0, null);

    private double now = 1000;
    private final List<Flight> flights = new ArrayList<>();
    private final List<String> drops = new ArrayList<>();
    private final SafeHooks hooks = new SafeHooks(new Hooks() {
        @Override
        public void dropped(long count, String cause) {
            drops.add(count + " " + cause);
        }
    });
    private Stock stock = new Stock(
            hooks, 100, Double.POSITIVE_INFINITY, () -> now, flights::add);

    /** Lets the first flight learn that the sequence is buffered. */
    private void learn() {
        stock.take();
        stock.learned(flight(), new Definition(true, true), List.of());
    }

    private Flight flight() {
        return flights.get(flights.size() - 1);
    }

    private void give(long first, long count) {
        stock.deliver(flight(), List.of(new Run(first, 1, count, null)), now, now);
    }

    /** Gives numbers, and ends the flight. */
    private void deliver(long first, long count) {
        check(stock.wanted(flight()) > 0, "nothing is wanted");
        give(first, count);
        equal(stock.wanted(flight()), 0L);
    }

    private Waiter waiting() {
        Waiter waiter = new Waiter(0);
        equal(stock.takeOrWait(waiter), null);
        return waiter;
    }

    private void take(int count) {
        for (int i = 0; i < count; i++) {
            check(stock.take() != null, "no number");
        }
    }

    @Test
    void aTakeFromNothingStartsOneRefill() {
        for (int i = 0; i < 5; i++) {
            equal(stock.take(), null);
        }
        equal(flights.size(), 1);
        learn();
        deliver(1, 100);
        equal(stock.take().value, 1L);
        equal(flights.size(), 1);
    }

    @Test
    void aPrefetchStartsBelowTwentyPerCentAndOnce() {
        learn();
        deliver(1, 100);
        take(80);
        equal(flights.size(), 1);
        take(2);
        equal(flights.size(), 2);
    }

    @Test
    void aPrefetchStartsEarlierIfRefillsAreSlow() {
        learn();
        double began = now;
        now += 2;
        stock.deliver(flight(), List.of(new Run(1, 1, 1000, null)), now, began);
        equal(stock.wanted(flight()), 0L);
        // 100 a second: the next refill, of 2 s, must start when 400 are left.
        for (int taken = 0; taken < 590; taken++) {
            now += 0.01;
            take(1);
        }
        equal(flights.size(), 1);
        take(20);
        equal(flights.size(), 2);
    }

    @Test
    void thereAreTwoBlocksAtMost() {
        learn();
        deliver(1, 100);
        take(85);
        deliver(101, 1);
        take(10);
        equal(flights.size(), 2);
    }

    @Test
    void aRefillAsksForTheNumbersOfTenSeconds() {
        learn();
        equal(stock.wanted(flight()), 100L);
        deliver(1, 100);
        for (int taken = 0; taken < 81; taken++) {
            now += 0.1;
            take(1);
        }
        long size = stock.wanted(flight());
        check(size > 90 && size < 110, size);
    }

    @Test
    void waitersAreServedInOrderAndNewCallersDoNotOvertake() {
        learn();
        List<Waiter> waiters = new ArrayList<>(List.of(waiting(), waiting(), waiting()));
        give(1, 2);
        waiters.add(waiting());
        give(3, 9);
        for (int at = 0; at < 4; at++) {
            equal(waiters.get(at).item.value, at + 1L);
        }
    }

    @Test
    void givingUpCostsNobodyANumberAndEndsNoRefill() {
        learn();
        Waiter first = waiting();
        Waiter second = waiting();
        check(stock.withdraw(first), "it is settled");
        deliver(1, 100);
        check(!stock.withdraw(second), "it is not settled");
        equal(first.item, null);
        equal(second.item.value, 1L);
        equal(stock.take().value, 2L);
    }

    @Test
    void aFailedRefillIsNotInFlightAnyMore() {
        learn();
        for (OdometerException failure : List.of(
                GONE, new OdometerException("client", "a defect", null))) {
            Flight failed = flight();
            equal(stock.failed(failed, failure, true), OptionalDouble.empty());
            stock.take();
            check(flight() != failed, "no other flight");
        }
        Flight ended = flight();
        Waiter waiter = waiting();
        stock.end(ended, new IllegalStateException("a defect"));
        equal(waiter.error.code(), "client");
        stock.take();
        check(flight() != ended, "no other flight");
    }

    @Test
    void withoutItsEndAFlightBlocksTheNextOne() {
        learn();
        now += 3600;
        stock.take();
        equal(flights.size(), 1);
    }

    @Test
    void aRefillIsTriedAgainAndEndsIfNobodyWaits() {
        learn();
        for (int nFailures = 1; nFailures <= 10; nFailures++) {
            OptionalDouble pause = stock.failed(flight(), LOST, true);
            equal(pause.isPresent(), nFailures < 10);
        }
        Waiter waiter = waiting();
        for (int nFailures = 1; nFailures <= 25; nFailures++) {
            check(stock.failed(flight(), LOST, true).isPresent(), "it gave up");
        }
        equal(waiter.isSettled, false);
    }

    @Test
    void aFlightAfterAFailureWaitsUnlessSomebodyWaitsAfterARefusal() {
        learn();
        stock.failed(flight(), GONE, true);
        stock.take();
        double pause = stock.firstPause(flight());
        check(pause > 0 && pause <= 0.05, pause);
        equal(flight().hurry.getCount(), 1L);
        waiting();
        equal(flight().hurry.getCount(), 0L);
    }

    @Test
    void aRefusalReachesAllWhoWait() {
        learn();
        List<Waiter> waiters = List.of(waiting(), waiting(), waiting());
        stock.failed(flight(), GONE, true);
        waiters.forEach(waiter -> equal(waiter.error, GONE));
    }

    @Test
    void whatWasOnItsWayIsDroppedByForget() {
        learn();
        Waiter waiter = waiting();
        Flight old = flight();
        stock.forget("forget");
        stock.deliver(old, List.of(new Run(1, 1, 100, null)), now, now);
        equal(waiter.isSettled, false);
        equal(drops, List.of("100 forget"));
        deliver(101, 100);
        equal(waiter.item.value, 101L);
        stock.forget("close");
        equal(drops, List.of("100 forget", "99 close"));
    }

    @Test
    void oldNumbersAreDropped() {
        stock = new Stock(hooks, 100, 10, () -> now, flights::add);
        learn();
        deliver(1, 100);
        now += 9.9;
        equal(stock.take().value, 1L);
        now += 0.2;
        equal(stock.take(), null);
        equal(drops, List.of("99 max_age"));
    }

    @Test
    void aWarmStartWaitsForItsCount() {
        learn();
        Waiter waiter = new Waiter(250);
        stock.warm(waiter);
        equal(stock.wanted(flight()), 250L);
        give(1, 200);
        equal(waiter.isSettled, false);
        equal(stock.wanted(flight()), 50L);
        deliver(201, 50);
        equal(waiter.isSettled, true);
    }

    @Test
    void numbersThatCannotBeBufferedAreDroppedOnceThatIsKnown() {
        stock.take();
        stock.learned(flight(), new Definition(false, true), List.of(new Run(1, 1, 1, null)));
        equal(drops, List.of("1 late"));
        equal(stock.left(), 0L);
    }

    @Test
    void aRangeMayComeFromTheMiddleAndLeavesTheRest() {
        learn();
        List<Run> runs = List.of(new Run(1, 1, 3, null),
                new Run(100, 5, 4, List.of("a", "b", "c", "d").iterator()));
        stock.deliver(flight(), runs, now, now);
        equal(stock.takeRange(4).toString(), "100 to 115 by 5");
        equal(stock.takeRange(4), null);
        equal(stock.takeRange(3).toString(), "1 to 3 by 1");
        equal(stock.left(), 0L);
    }

    @Test
    void idsStayWithTheirNumbersAfterARange() {
        learn();
        List<String> ids = List.of("a", "b", "c", "d");
        stock.deliver(flight(), List.of(new Run(1, 1, 4, ids.iterator())), now, now);
        equal(stock.takeRange(2).last(), 2L);
        equal(stock.take().printed(), "c");
    }
}
