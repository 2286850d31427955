package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.equal;
import static odometer.client.Tests.thrown;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import odometer.client.Tests.Test;

/** Tests the options of a client. */
final class OptionsTest implements AutoCloseable {
    /** A busy machine may be slow. */
    private static final Duration LONG = Duration.ofSeconds(10);

    private final StubService stub = new StubService();
    private final Path folder = Files.createTempDirectory("odometer-client");
    private final Path file = folder.resolve("token");

    OptionsTest() throws IOException {}

    @Override
    public void close() throws IOException {
        stub.close();
        Files.deleteIfExists(file);
        Files.delete(folder);
    }

    /** Returns the header that a call of this client has. */
    private String sentBy(OdometerClient client) {
        client.sequence("orders").nextIn("x");
        return stub.headers.get(stub.headers.size() - 1).get("authorization");
    }

    private OdometerClient built(OdometerClient.Builder builder) {
        return builder.deadline(LONG).build();
    }

    private OdometerClient.Builder builder() {
        return OdometerClient.builder(stub.url + "//");
    }

    @Test
    void aTokenIsSentWithoutTheSpaceAroundIt() {
        try (OdometerClient none = built(builder()); OdometerClient one = built(
                builder().token(" one\n"))) {
            equal(sentBy(none), null);
            equal(sentBy(one), "Bearer one");
        }
    }

    @Test
    void aTokenFileIsReadAtEachCallAndItsLastTokenIsKept() throws IOException {
        Files.writeString(file, "one\n");
        try (OdometerClient client = built(builder().tokenFile(file))) {
            equal(sentBy(client), "Bearer one");
            Files.writeString(file, "two");
            equal(sentBy(client), "Bearer two");
            Files.writeString(file, "not\none line");
            equal(sentBy(client), "Bearer two");
            Files.write(file, new byte[] {'a', (byte) 0xff});
            equal(sentBy(client), "Bearer two");
            Files.writeString(file, "");
            equal(sentBy(client), "Bearer two");
            Files.delete(file);
            equal(sentBy(client), "Bearer two");
        }
    }

    private void isRefused(String secret) throws IOException {
        Files.writeString(file, secret);
        for (IllegalArgumentException error : List.of(
                thrown(IllegalArgumentException.class, () -> builder().token(secret)),
                thrown(IllegalArgumentException.class, () -> builder().tokenFile(file)))) {
            check(!error.toString().contains("secret"), error);
            equal(error.getCause(), null);
        }
    }

    @Test
    void aTokenThatNoHeaderCanHaveIsRefusedAndNotShown() throws IOException {
        isRefused("secret\nword");
        isRefused("secret word");
        isRefused("secret\u00e9");
        isRefused("secret\u0000");
    }

    @Test
    void anEmptyTokenIsRefusedAtTheStart() throws IOException {
        thrown(IllegalArgumentException.class, () -> builder().tokenFile(file));
        isRefused("");
        isRefused(" \n");
    }

    @Test
    void anAddressThatIsNoneIsRefused() {
        for (String url : List.of("", "host:8080", "ftp://host", "http://", "http://host:0",
                "http://host:99999", "http://a b", "http://host?x=1", "http://host#x",
                "http://user@host", "http://under_score", "//host")) {
            thrown(IllegalArgumentException.class, () -> OdometerClient.builder(url));
        }
        OdometerClient.builder("http://host", "HTTPS://[::1]:8443/below/").build();
        OdometerClient.builder().build();
    }

    @Test
    void thePasswordOfAnAddressIsNotShown() {
        for (String url : List.of("http://me:secret@host", "http://me:se cret@host")) {
            IllegalArgumentException error = thrown(IllegalArgumentException.class,
                    () -> OdometerClient.builder("http://host", url));
            equal(error.getMessage(), "endpoint 2 is no address such as http://host:8080");
            equal(error.getCause(), null);
        }
    }

    @Test
    void sizesAndTimesAreAboveZero() {
        thrown(IllegalArgumentException.class, () -> builder().initialSize(0));
        for (Duration wrong : List.of(Duration.ZERO, Duration.ofNanos(-1))) {
            thrown(IllegalArgumentException.class, () -> builder().deadline(wrong));
            thrown(IllegalArgumentException.class, () -> builder().refillTimeout(wrong));
            thrown(IllegalArgumentException.class, () -> builder().maxAge(wrong));
        }
    }
}
