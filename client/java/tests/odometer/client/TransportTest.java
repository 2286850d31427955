package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.equal;
import static odometer.client.Tests.thrown;
import static odometer.client.Tests.until;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import odometer.client.OdometerClient.CallFailed;
import odometer.client.OdometerClient.OdometerException;
import odometer.client.OdometerClient.Threads;
import odometer.client.Tests.Test;

/** Tests one call over HTTP, and the connections that stay open for the next one. */
final class TransportTest implements AutoCloseable {
    private static final String HEAD = "HTTP/1.1 200 OK\r\n";
    private static final String WHOLE = HEAD + "content-length: 11\r\n\r\n{\"count\":1}";
    private static final String CHUNKS = HEAD + "transfer-encoding: chunked\r\n\r\n"
            + "b\r\n{\"count\":1}\r\n0\r\n\r\n";

    private double now = 100;
    private final StubService stub = new StubService();
    private final Service.Transport transport = new Service.Transport(
            null, new Threads().own, () -> now);

    TransportTest() throws IOException {}

    @Override
    public void close() throws IOException {
        transport.closeIdle();
        stub.close();
    }

    private String called(double timeout) {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(stub.url + "/next"));
        HttpResponse<byte[]> response = transport.call(request, timeout, stub.url);
        return new String(response.body(), StandardCharsets.UTF_8);
    }

    /** Makes a call that is answered by these bytes, before the connection closes. */
    private String answeredBy(String bytes) {
        stub.closes = true;
        stub.answer = call -> bytes;
        transport.closeIdle();
        return called(5);
    }

    @Test
    void aReplyThatIsCutAnywhereIsNone() {
        for (String whole : new String[] {WHOLE, CHUNKS}) {
            int end = whole.equals(WHOLE) ? whole.length() : whole.indexOf("\r\n0\r\n");
            for (int nBytes = 0; nBytes < end; nBytes++) {
                String cut = whole.substring(0, nBytes);
                CallFailed failure = thrown(CallFailed.class, () -> answeredBy(cut));
                equal(failure.code(), "connection");
            }
        }
    }

    @Test
    void aWholeReplyIsRead() {
        equal(answeredBy(WHOLE) + answeredBy(CHUNKS), "{\"count\":1}{\"count\":1}");
    }

    @Test
    void aReplyThatDoesNotSayItsLengthIsNone() {
        CallFailed failure = thrown(CallFailed.class, () -> answeredBy(HEAD + "\r\n{\"count\":1}"));
        equal(failure.code(), "connection");
    }

    @Test
    void aBodyThatStopsEndsTheCallInTimeAndItsConnection() throws Exception {
        hangsAfter(HEAD + "content-length: 11\r\n\r\n{\"cou");
    }

    @Test
    void aHeadThatStopsEndsTheCallInTimeAndItsConnection() throws Exception {
        hangsAfter("HTTP/1.1 200");
    }

    private void hangsAfter(String bytes) throws Exception {
        // So that the next call has a connection, however slow the machine is.
        called(5);
        stub.answer = call -> bytes;
        equal(thrown(CallFailed.class, () -> called(0.5)).code(), "timeout");
        until("the connection is closed", () -> stub.nClosed.get() == 1);
        equal(stub.nOpened.get(), 1);
    }

    @Test
    void aConnectionServesAgainForAMinute() throws Exception {
        called(5);
        now += 59.9;
        called(5);
        equal(stub.nOpened.get(), 1);
        now += 0.2;
        called(5);
        equal(stub.nOpened.get(), 2);
        until("the first connection is closed", () -> stub.nClosed.get() == 1);
    }

    @Test
    void closingClosesIdleConnectionsAtOnceAndOthersAfterTheirCalls() throws Exception {
        called(5);
        transport.closeIdle();
        until("the idle connection is closed", () -> stub.nClosed.get() == 1);
        CountDownLatch gate = new CountDownLatch(1);
        stub.answer = call -> {
            awaited(gate);
            return null;
        };
        CompletableFuture<String> held = CompletableFuture.supplyAsync(() -> called(5));
        until("the call has come", () -> stub.calls.size() == 2);
        transport.closeIdle();
        equal(stub.nClosed.get(), 1);
        gate.countDown();
        check(held.get().contains("value"), held);
        until("the other connection is closed", () -> stub.nClosed.get() == 2);
        called(5);
        equal(stub.nOpened.get(), 3);
    }

    @Test
    void closingEndsTheThreadOfTheHttpClient() throws Exception {
        Set<Thread> own = new HashSet<>(Thread.getAllStackTraces().keySet());
        called(5);
        Set<Thread> started = new HashSet<>(Thread.getAllStackTraces().keySet());
        started.removeAll(own);
        started.removeIf(thread -> !thread.getName().contains("SelectorManager"));
        equal(started.size(), 1);
        transport.closeIdle();
        until("its thread has ended", () -> !started.iterator().next().isAlive());
    }

    @Test
    void aPortThatRefusesIsAFailedConnection() throws Exception {
        stub.close();
        equal(thrown(CallFailed.class, () -> called(5)).code(), "connection");
    }

    @Test
    void anInterruptEndsTheCall() {
        Thread.currentThread().interrupt();
        OdometerException failure = thrown(OdometerException.class, () -> called(5));
        equal(failure.code(), "interrupted");
        check(Thread.interrupted(), "the flag is lost");
    }

    static void awaited(CountDownLatch gate) {
        try {
            gate.await();
        } catch (InterruptedException never) {
            throw new IllegalStateException(never);
        }
    }
}
