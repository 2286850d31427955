package odometer.client;

import static odometer.client.Tests.equal;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.DoubleSupplier;
import odometer.client.OdometerClient.Endpoints;
import odometer.client.OdometerClient.Endpoints.Health;
import odometer.client.OdometerClient.OdometerException;
import odometer.client.Tests.Test;

/** Tests which replica is called, and how long a failure is waited out. */
final class EndpointsTest {
    private static final DoubleSupplier LOWEST = () -> 0.0;
    private static final DoubleSupplier HIGHEST = () -> 0.9999999;

    private double now = 100;
    private final Endpoints endpoints = of(LOWEST, "a", "b", "c");

    private Endpoints of(DoubleSupplier random, String... urls) {
        return new Endpoints(List.of(urls), () -> now, random);
    }

    private static OdometerException refusal(int status, String code, long limit, long after) {
        return new OdometerException(code, "no", null, "a", status, limit, after);
    }

    private String chosen() {
        return endpoints.choose().url;
    }

    private String failed(Endpoints of) {
        Health called = of.choose();
        of.failed(called, now);
        return called.url;
    }

    /** Makes a call that ends with this, and returns who is called then. */
    private String after(OdometerException refusal, boolean isLast) {
        endpoints.judge(endpoints.choose(), now, refusal, isLast);
        return chosen();
    }

    @Test
    void theFirstEndpointIsRandom() {
        Set<String> found = new HashSet<>();
        for (int i = 0; i < 200; i++) {
            found.add(of(Math::random, "a", "b", "c").choose().url);
        }
        equal(found, Set.of("a", "b", "c"));
        equal(of(HIGHEST, "a", "b").choose().url, "b");
    }

    @Test
    void anEndpointIsKeptUntilItFails() {
        equal(after(null, false) + after(null, false), "aa");
        equal(failed(endpoints), "a");
        now += 100;
        equal(chosen() + chosen(), "bb");
    }

    @Test
    void restsDoubleToThirtySeconds() {
        Endpoints two = of(LOWEST, "a", "b");
        for (int rest : new int[] {1, 2, 4, 8, 16, 30, 30}) {
            equal(failed(two), "a");
            now += rest - 0.01;
            Health other = two.choose();
            two.leave(other);
            equal(other.url + two.choose().url, "bb");
            now += 0.02;
            two.leave(other);
        }
    }

    @Test
    void aRestIsLongerByUpToAQuarter() {
        Endpoints two = of(HIGHEST, "a", "b");
        equal(failed(two), "b");
        now += 1.24;
        two.leave(two.choose());
        equal(two.choose().url, "a");
        now += 0.02;
        two.leave(two.choose());
        equal(two.choose().url, "b");
    }

    @Test
    void oneCallAloneProbesForEightSeconds() {
        failed(endpoints);
        now += 2;
        endpoints.leave(endpoints.choose());
        endpoints.leave(endpoints.choose());
        Health probed = endpoints.choose();
        equal(probed.url + chosen(), "ab");
        now += 7.9;
        endpoints.leave(endpoints.choose());
        endpoints.leave(endpoints.choose());
        equal(chosen(), "b");
        // The probe never ended.
        now += 0.2;
        endpoints.leave(endpoints.choose());
        endpoints.leave(endpoints.choose());
        equal(chosen(), "a");
        endpoints.judge(probed, now, null, false);
        equal(chosen() + chosen(), "aa");
    }

    @Test
    void ifAllRestTheOneThatRestedLongestIsCalled() {
        for (String wanted : "abcabc".split("")) {
            equal(failed(endpoints), wanted);
            now += 0.01;
        }
        // Also if its last failures are many, and its rest is long.
        now += 0.5;
        equal(chosen() + chosen() + chosen(), "abc");
    }

    @Test
    void callsThatFailTogetherCountOnce() {
        List<Health> called = List.of(endpoints.choose(), endpoints.choose(), endpoints.choose());
        double began = now;
        now += 1;
        called.forEach(each -> endpoints.failed(each, began));
        now += 1.01;
        endpoints.leave(endpoints.choose());
        endpoints.leave(endpoints.choose());
        equal(chosen(), "a");
    }

    /** Makes calls of 400 ms that get no reply, and returns who was called. */
    private String hurried(Endpoints of, int nCalls) {
        StringBuilder called = new StringBuilder();
        for (int i = 0; i < nCalls; i++) {
            Health chosen = of.choose();
            double began = now;
            now += 0.4;
            of.hurried(chosen, began, 1);
            called.append(chosen.url);
        }
        return called.toString();
    }

    @Test
    void callersInAHurryWhoGetNoReplyForASecondAreOneFailure() {
        equal(hurried(of(LOWEST, "a", "b"), 4), "aaab");
    }

    @Test
    void aReplyEndsTheRowOfCallersInAHurry() {
        Endpoints two = of(LOWEST, "a", "b");
        equal(hurried(two, 2), "aa");
        two.judge(two.choose(), now, refusal(410, "sequence_retired", 0, 0), false);
        equal(hurried(two, 2), "aa");
    }

    @Test
    void aCallFromBeforeAFailureProvesNothing() {
        Health called = endpoints.choose();
        double began = now;
        now += 1;
        endpoints.failed(called, now);
        endpoints.judge(called, began, null, false);
        endpoints.leave(endpoints.choose());
        endpoints.leave(endpoints.choose());
        equal(chosen(), "b");
    }

    @Test
    void aReplicaThatCannotServeRests() {
        for (int status : new int[] {502, 503, 504}) {
            Endpoints two = of(LOWEST, "a", "b");
            two.judge(two.choose(), now, refusal(status, "x", 0, 0), false);
            Health other = two.choose();
            two.leave(other);
            equal(other.url + two.choose().url, "bb");
        }
    }

    @Test
    void aRefusalKeepsTheReplicaUnlessAnotherMayDoBetter() {
        equal(after(refusal(410, "sequence_retired", 0, 0), false), "a");
        equal(after(refusal(429, "rate_limited", 40, 0), false), "a");
        equal(after(refusal(429, "rate_limited", 0, 0), false), "b");
        equal(after(refusal(404, "route_not_found", 0, 0), false), "c");
        equal(after(refusal(403, "http_403", 0, 0), false), "a");
        equal(after(refusal(200, "invalid_reply", 0, 0), false), "b");
        equal(after(refusal(409, "confirm_needed", 0, 0), true), "c");
        equal(after(null, true), "a");
    }

    @Test
    void forgettingEndsAllRests() {
        failed(endpoints);
        failed(endpoints);
        failed(endpoints);
        // A clock may fall if a process goes on elsewhere.
        now = -1000;
        endpoints.forget();
        endpoints.judge(endpoints.choose(), now, null, false);
        equal(chosen(), "a");
        failed(endpoints);
        equal(chosen(), "b");
    }

    private List<Double> pauses(DoubleSupplier random, OdometerException error, int... nFailures) {
        List<Double> pauses = new ArrayList<>();
        for (int n : nFailures) {
            pauses.add(of(random, "a").pause(n, error));
        }
        return pauses;
    }

    @Test
    void pausesDoubleFromFiftyMillisecondsToTwoSeconds() {
        OdometerException away = refusal(503, "x", 0, 0);
        equal(pauses(() -> 1.0, away, 1, 2, 3, 6, 7, 1000),
                List.of(0.05, 0.1, 0.2, 1.6, 2.0, 2.0));
        equal(pauses(LOWEST, away, 5), List.of(0.0));
    }

    @Test
    void aSoleReplicaIsAskedAfterTheTimeThatItNamedAndWithinAMinute() {
        OdometerException later = refusal(503, "x", 0, 3);
        equal(pauses(LOWEST, later, 1), List.of(3.0));
        equal(pauses(() -> 1.0, later, 1), List.of(3.05));
        equal(pauses(LOWEST, refusal(503, "x", 0, 1_000_000), 1), List.of(60.0));
        equal(endpoints.pause(1, later), 0.0);
    }
}
