package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.code;
import static odometer.client.Tests.equal;
import static odometer.client.Tests.until;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ProxySelector;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import odometer.client.OdometerClient.Kind;
import odometer.client.OdometerClient.Sequence;
import odometer.client.Tests.Test;

/** Tests one call over HTTP, and the connections that stay open for the next one. */
final class TransportTest implements AutoCloseable {
    private static final Duration LONG = Duration.ofSeconds(10);
    private static final String HEAD = "HTTP/1.1 200 OK\r\n";
    private static final String BODY = "{\"value\":\"1\",\"id\":\"1\"}";
    private static final String WHOLE = HEAD + "content-length: " + BODY.length() + "\r\n\r\n"
            + BODY;
    private static final String CHUNKS = HEAD + "transfer-encoding: chunked\r\n\r\n"
            + Integer.toHexString(BODY.length()) + "\r\n" + BODY + "\r\n0\r\n\r\n";

    private final StubService stub = new StubService();
    private final OdometerClient client = OdometerClient.builder(stub.url).deadline(LONG).build();
    private final Sequence orders = client.sequence("orders");

    TransportTest() throws IOException {}

    @Override
    public void close() throws IOException {
        client.close();
        stub.close();
    }

    /** Makes calls of which the first one is answered by these bytes. Each has a connection. */
    private String answeredBy(String bytes) {
        stub.closes = true;
        stub.calls.clear();
        stub.answer = call -> stub.calls.size() == 1 ? bytes : WHOLE;
        orders.nextIn("x");
        return stub.calls.size() == 1 ? "read" : "tried again";
    }

    @Test
    void aReplyThatIsCutAnywhereIsNone() {
        for (String whole : new String[] {WHOLE, CHUNKS}) {
            int end = whole.equals(WHOLE) ? whole.length() : whole.indexOf("\r\n0\r\n");
            for (int nBytes = 0; nBytes < end; nBytes += 1 + nBytes / 20) {
                equal(answeredBy(whole.substring(0, nBytes)), "tried again");
            }
        }
    }

    @Test
    void aWholeReplyIsRead() {
        equal(answeredBy(WHOLE) + answeredBy(CHUNKS), "readread");
        equal(answeredBy(HEAD + "\r\n" + BODY), "read");
    }

    @Test
    void aRefusalThatEndsWithItsConnectionIsFinal() {
        stub.closes = true;
        stub.answer = call -> "HTTP/1.1 401 No\r\n\r\n{\"code\":\"token_missing\"}";
        equal(code(orders::next), "token_missing");
        equal(stub.calls, List.of("GET orders"));
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
        try (OdometerClient hasty = OdometerClient.builder(stub.url).deadline(LONG)
                .refillTimeout(Duration.ofSeconds(1)).build()) {
            Sequence called = hasty.sequence("orders");
            called.nextIn("x");
            AtomicBoolean hasHung = new AtomicBoolean();
            stub.answer = call -> hasHung.getAndSet(true) ? null : bytes;
            check(called.nextIn("x") > 1, "no number");
            equal(hasHung.get(), true);
            until("the connection is closed", () -> stub.nClosed.get() > 0);
        }
    }

    @Test
    void callsInARowShareAConnectionOfHttp11() {
        for (int i = 0; i < 3; i++) {
            orders.nextIn("x");
        }
        equal(stub.nOpened.get(), 1);
        equal(stub.headers.get(0).get("upgrade"), null);
        equal(stub.headers.get(0).get("user-agent"),
                "odometer-client-java/" + OdometerClient.VERSION);
    }

    @Test
    void aLostCallIsNotSentAgainByTheJdk() {
        orders.nextIn("x");
        stub.answer = call -> stub.posts().size() == 2 ? StubService.CUT : null;
        equal(orders.nextIn("x"), 2L);
        equal(stub.posts().size(), 3);
    }

    @Test
    void theProxyOfTheJvmIsNotUsed() throws Exception {
        ProxySelector own = ProxySelector.getDefault();
        try (ServerSocket proxy = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
            ProxySelector.setDefault(ProxySelector.of(new InetSocketAddress(
                    proxy.getInetAddress(), proxy.getLocalPort())));
            equal(orders.next(), 1L);
        } finally {
            ProxySelector.setDefault(own);
        }
    }

    @Test
    void redirectsAreNotFollowed() {
        stub.answer = call -> "HTTP/1.1 307 Elsewhere\r\nLocation: " + stub.url
                + "/v1/sequences/orders\r\nContent-Length: 0\r\n\r\n";
        equal(code(orders::next), "http_307");
        equal(stub.calls.size(), 1);
    }

    @Test
    void aReplicaThatTakesNoConnectionsIsLeftSoon() throws Exception {
        // A listener whose queue is full lets the next one wait for minutes.
        List<Socket> queued = new ArrayList<>();
        try (ServerSocket full = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
            for (int i = 0; i < 2; i++) {
                Socket socket = new Socket();
                queued.add(socket);
                socket.connect(full.getLocalSocketAddress(), 1000);
            }
            String url = "http://127.0.0.1:" + full.getLocalPort();
            // Most of them begin at the listener.
            int nMet = 0;
            for (int i = 0; i < 20 && nMet < 2; i++) {
                double began = OdometerClient.now();
                // A call may take longer than the deadline.
                try (OdometerClient other = OdometerClient.builder(url, url, url, stub.url)
                        .deadline(LONG).refillTimeout(Duration.ofSeconds(60)).build()) {
                    other.sequence("orders", Kind.BUFFERED).next();
                }
                nMet += OdometerClient.now() - began > 0.9 ? 1 : 0;
            }
            check(nMet == 2, "vacuous: " + nMet + " clients met the listener");
        } finally {
            for (Socket socket : queued) {
                socket.close();
            }
        }
    }

    @Test
    void aPortThatRefusesIsUnreachable() throws Exception {
        stub.close();
        try (OdometerClient hasty = OdometerClient.builder(stub.url)
                .deadline(Duration.ofSeconds(1)).build()) {
            equal(code(() -> hasty.sequence("orders").nextIn("x")), "deadline");
        }
    }

    /** Returns the threads of the JDK's clients. */
    private static Set<Thread> selectors() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(each -> each.getName().matches("HttpClient-[0-9]+-SelectorManager"))
                .collect(Collectors.toSet());
    }

    @Test
    void aClientOfTheJdkThatHasEndedIsReplaced() throws Exception {
        Set<Thread> before = selectors();
        try (OdometerClient other = OdometerClient.builder(stub.url).deadline(LONG)
                .refillTimeout(Duration.ofMillis(300)).build()) {
            Sequence called = other.sequence("orders");
            called.nextIn("x");
            Set<Thread> own = selectors();
            own.removeAll(before);
            equal(own.size(), 1);
            for (Thread selector : own) {
                // It ends, as it does if the machine has no memory or thread for it.
                selector.interrupt();
                selector.join(10_000);
                check(!selector.isAlive(), "the client of the JDK goes on");
            }
            List<Caller> callers = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                callers.add(Caller.of(() -> called.nextIn("x") > 1));
            }
            for (Caller caller : callers) {
                equal(caller.outcome(), "true");
            }
        }
    }

    @Test
    void anInterruptEndsTheCall() {
        Thread.currentThread().interrupt();
        equal(code(() -> orders.nextIn("x")), "interrupted");
        equal(Thread.interrupted(), true);
    }

    static void awaited(CountDownLatch gate) {
        try {
            gate.await();
        } catch (InterruptedException never) {
            throw new IllegalStateException(never);
        }
    }
}
