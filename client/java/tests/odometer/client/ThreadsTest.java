package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.code;
import static odometer.client.Tests.equal;
import static odometer.client.Tests.until;

import java.io.IOException;
import java.net.URL;
import java.net.URLClassLoader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import odometer.client.OdometerClient.Hooks;
import odometer.client.OdometerClient.Sequence;
import odometer.client.Tests.Test;

/** Tests the threads of a client, which outlive those who start them. */
final class ThreadsTest implements AutoCloseable {
    private static final Duration LONG = Duration.ofSeconds(10);

    private final StubService stub = new StubService();
    private final AtomicReference<OdometerClient> client = new AtomicReference<>();
    private final CountDownLatch gate = new CountDownLatch(1);

    ThreadsTest() throws IOException {}

    @Override
    public void close() throws IOException {
        gate.countDown();
        client.get().close();
        stub.close();
    }

    @Test
    @SuppressWarnings("deprecation") // Before JDK 19 such a group ends with its last thread.
    void theGroupOfTheThreadThatMadeTheClientMayEnd() throws Exception {
        ThreadGroup group = new ThreadGroup("short");
        group.setDaemon(true);
        Thread thread = new Thread(group, () ->
                client.set(OdometerClient.builder(stub.url).deadline(LONG).build()));
        thread.start();
        thread.join();
        equal(client.get().sequence("orders").next(), 1L);
        equal(client.get().sequence("orders").nextIn("x"), 101L);
    }

    @Test
    void threadsKeepNothingOfWhoStartsThem() throws Exception {
        List<String> inherited = new CopyOnWriteArrayList<>();
        InheritableThreadLocal<String> own = new InheritableThreadLocal<>() {
            @Override
            protected String childValue(String value) {
                inherited.add(value);
                return value;
            }
        };
        List<Thread> told = new CopyOnWriteArrayList<>();
        client.set(OdometerClient.builder(stub.url).deadline(LONG).hooks(new Hooks() {
            @Override
            public void refill(String sequence, String endpoint, String outcome, double seconds,
                    long count) {
                told.add(Thread.currentThread());
            }
        }).build());
        Thread caller = new Thread(new ThreadGroup("of the caller"), () -> {
            own.set("mine");
            client.get().sequence("orders").next();
            client.get().sequence("lines").next();
        });
        caller.setPriority(Thread.MIN_PRIORITY);
        caller.setContextClassLoader(new URLClassLoader(new URL[0]));
        caller.start();
        caller.join();
        until("hooks are told", () -> told.size() == 2);
        equal(inherited, List.of());
        for (Thread each : told) {
            equal(each.getPriority(), Thread.NORM_PRIORITY);
            equal(each.isDaemon(), true);
            equal(each.getContextClassLoader(), OdometerClient.class.getClassLoader());
            equal(each.getThreadGroup().getParent(), null);
        }
        for (Thread each : Thread.getAllStackTraces().keySet()) {
            if (each.getName().startsWith("HttpClient-")) {
                equal(each.getContextClassLoader() instanceof URLClassLoader, false);
            }
        }
    }

    /** Returns whether a thread of any client does something for it. */
    private static boolean isAnyAtWork() {
        return Thread.getAllStackTraces().entrySet().stream()
                .filter(each -> each.getKey().getName().equals("odometer-client"))
                .flatMap(each -> Arrays.stream(each.getValue()))
                .anyMatch(frame -> frame.getClassName().contains("OdometerClient"));
    }

    /** Keeps all workers of the common pool busy, but for so many. */
    private void keepBusy(int nFree) throws InterruptedException {
        int nWorkers = ForkJoinPool.getCommonPoolParallelism();
        check(nWorkers > 1, "vacuous: the JDK does not use the pool");
        CountDownLatch begun = new CountDownLatch(nWorkers - nFree);
        for (int i = 0; i < nWorkers - nFree; i++) {
            ForkJoinPool.commonPool().execute(() -> {
                begun.countDown();
                TransportTest.awaited(gate);
            });
        }
        check(begun.await(10, TimeUnit.SECONDS), "vacuous: some workers are free");
    }

    @Test
    void aBusyCommonPoolDelaysNoNumber() throws Exception {
        client.set(OdometerClient.builder(stub.url).deadline(LONG).build());
        keepBusy(0);
        equal(client.get().sequence("orders").next(), 1L);
        equal(client.get().sequence("orders").nextIn("x"), 101L);
    }

    @Test
    void aCallerInTheCommonPoolRunsNoOtherTaskMeanwhile() throws Exception {
        client.set(OdometerClient.builder(stub.url).deadline(LONG).build());
        keepBusy(1);
        List<String> done = new CopyOnWriteArrayList<>();
        ForkJoinPool.commonPool().submit(() -> {
            // It waits in the queue of this worker.
            CompletableFuture.runAsync(() -> done.add("other"));
            done.add("" + client.get().sequence("orders").next());
            done.add("" + client.get().sequence("orders").nextIn("x"));
        }).get(10, TimeUnit.SECONDS);
        until("the other task is done", () -> done.contains("other"));
        equal(done, List.of("1", "101", "other"));
    }

    @Test
    void refillsThatWaitForTheServiceHoldNoThreads() throws Exception {
        String away = StubService.refusal(503, "store_unavailable")
                .replace("Content-Type", "Retry-After: 50\r\nX");
        stub.answer = call -> {
            TransportTest.awaited(gate);
            return away;
        };
        client.set(OdometerClient.builder(stub.url).deadline(LONG).build());
        List<Sequence> all = new ArrayList<>();
        for (int i = 0; i < 100; i++) {
            Sequence sequence = client.get().sequence("s" + i);
            all.add(sequence);
            equal(code(sequence::take), "empty");
        }
        until("calls have come", () -> !stub.calls.isEmpty());
        check(isAnyAtWork(), "vacuous: a call needs a thread");
        gate.countDown();
        until("all wait", () -> all.stream().allMatch(it -> it.flight != null
                && it.flight.startsAt > OdometerClient.now() + 20));
        until("no thread is needed", () -> !isAnyAtWork());
    }
}
