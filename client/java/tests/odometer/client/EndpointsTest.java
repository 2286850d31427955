package odometer.client;

import static odometer.client.Tests.equal;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.DoubleSupplier;
import odometer.client.OdometerClient.CallFailed;
import odometer.client.Service.Endpoints;
import odometer.client.Tests.Test;

/** Tests which replica is called, and how long a failure is waited out. */
final class EndpointsTest {
    private static final DoubleSupplier LOWEST = () -> 0.0;
    private static final DoubleSupplier HIGHEST = () -> 0.9999999;

    private double now = 100;
    private final Endpoints endpoints = of("a", "b", "c");

    private Endpoints of(String... urls) {
        return new Endpoints(List.of(urls), () -> now, LOWEST);
    }

    private String chosen() {
        Endpoints.Turn turn = endpoints.choose();
        endpoints.abandoned(turn);
        return turn.url;
    }

    private String failed() {
        Endpoints.Turn turn = endpoints.choose();
        endpoints.failed(turn);
        return turn.url;
    }

    @Test
    void theFirstEndpointIsRandom() {
        Set<String> found = new HashSet<>();
        for (int i = 0; i < 200; i++) {
            Endpoints any = new Endpoints(List.of("a", "b", "c"), () -> now, Math::random);
            found.add(any.choose().url);
        }
        equal(found, Set.of("a", "b", "c"));
        equal(new Endpoints(List.of("a", "b"), () -> now, HIGHEST).choose().url, "b");
    }

    @Test
    void anEndpointIsKeptUntilItFails() {
        for (int i = 0; i < 3; i++) {
            Endpoints.Turn turn = endpoints.choose();
            equal(turn.url, "a");
            endpoints.succeeded(turn);
        }
        equal(failed(), "a");
        now += 100;
        equal(chosen() + chosen(), "bb");
    }

    @Test
    void restsDoubleToThirtySeconds() {
        Endpoints two = of("a", "b");
        for (int rest : new int[] {1, 2, 4, 8, 16, 30, 30}) {
            Endpoints.Turn turn = two.choose();
            equal(turn.url, "a");
            two.failed(turn);
            now += rest - 0.01;
            Endpoints.Turn other = two.choose();
            two.movedOn(other);
            equal(other.url + two.choose().url, "bb");
            now += 0.02;
            two.movedOn(other);
        }
    }

    @Test
    void aRestIsLongerByUpToAQuarter() {
        Endpoints two = new Endpoints(List.of("a", "b"), () -> now, HIGHEST);
        Endpoints.Turn turn = two.choose();
        equal(turn.url, "b");
        two.failed(turn);
        now += 1.24;
        two.movedOn(two.choose());
        equal(two.choose().url, "a");
        now += 0.02;
        two.movedOn(two.choose());
        equal(two.choose().url, "b");
    }

    @Test
    void oneCallAloneProbes() {
        failed();
        now += 2;
        endpoints.movedOn(endpoints.choose());
        endpoints.movedOn(endpoints.choose());
        Endpoints.Turn probe = endpoints.choose();
        equal(probe.url + probe.isProbe, "atrue");
        equal(chosen(), "b");
        endpoints.succeeded(probe);
        endpoints.movedOn(endpoints.choose());
        endpoints.movedOn(endpoints.choose());
        Endpoints.Turn again = endpoints.choose();
        equal(again.url + again.isProbe, "afalse");
    }

    @Test
    void ifAllRestTheOneThatRestedLongestIsCalled() {
        for (String wanted : "abcabc".split("")) {
            equal(failed(), wanted);
            now += 0.01;
        }
    }

    @Test
    void callsThatFailTogetherCountOnce() {
        List<Endpoints.Turn> turns = List.of(
                endpoints.choose(), endpoints.choose(), endpoints.choose());
        now += 1;
        turns.forEach(endpoints::failed);
        endpoints.movedOn(endpoints.choose());
        endpoints.movedOn(endpoints.choose());
        now += 1.01;
        equal(chosen(), "a");
    }

    @Test
    void movingOnIsNoRest() {
        StringBuilder urls = new StringBuilder();
        for (int i = 0; i < 4; i++) {
            Endpoints.Turn turn = endpoints.choose();
            endpoints.movedOn(turn);
            urls.append(turn.url);
        }
        equal(urls.toString(), "abca");
    }

    @Test
    void pausesDoubleFromFiftyMillisecondsToTwoSeconds() {
        List<Double> pauses = new ArrayList<>();
        for (int nFailures : new int[] {1, 2, 3, 6, 7, 1000}) {
            pauses.add(Service.pause(nFailures, null, true, () -> 1.0));
        }
        equal(pauses, List.of(0.05, 0.1, 0.2, 1.6, 2.0, 2.0));
        equal(Service.pause(5, null, true, LOWEST), 0.0);
    }

    @Test
    void aSoleReplicaIsAskedAfterTheTimeThatItNamedAndWithinAMinute() {
        equal(Service.pause(1, asksFor(3), true, LOWEST), 3.0);
        equal(Service.pause(1, asksFor(3), true, () -> 1.0), 3.05);
        equal(Service.pause(1, asksFor(3), false, LOWEST), 0.0);
        equal(Service.pause(1, asksFor(1_000_000), true, LOWEST), 60.0);
    }

    private static CallFailed asksFor(long retryAfter) {
        return new CallFailed("away", "http://a", "store_unavailable", 503, 0, retryAfter, null);
    }
}
