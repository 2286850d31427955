package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.equal;
import static odometer.client.Tests.thrown;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
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
        client.forget();
        client.sequence("orders").next();
        return stub.headers.get(stub.headers.size() - 1).get("authorization");
    }

    private OdometerClient from(String... pairs) {
        Map<String, String> environment = pairs.length == 2 ? Map.of(pairs[0], pairs[1])
                : Map.of(pairs[0], pairs[1], pairs[2], pairs[3]);
        return OdometerClient.fromEnvironment(environment).deadline(LONG).build();
    }

    @Test
    void theEnvironmentSaysWhomToCallAndWithWhichToken() throws IOException {
        try (OdometerClient client = from("ODOMETER_URL", stub.url + "/, ," + stub.url)) {
            equal(sentBy(client), null);
        }
        try (OdometerClient client = from("ODOMETER_URL", stub.url, "ODOMETER_TOKEN", "one")) {
            equal(sentBy(client), "Bearer one");
        }
        Files.writeString(file, "two\n");
        try (OdometerClient client = from(
                "ODOMETER_URL", stub.url, "ODOMETER_TOKEN_FILE", file.toString())) {
            equal(sentBy(client), "Bearer two");
        }
        OdometerClient.fromEnvironment(Map.of()).build();
    }

    @Test
    void aTokenFileIsReadAtEachCallAndItsLastTokenIsKept() throws IOException {
        thrown(IllegalArgumentException.class, () -> OdometerClient.builder().tokenFile(file));
        Files.writeString(file, "one");
        try (OdometerClient client = OdometerClient.builder(stub.url).deadline(LONG)
                .tokenFile(file).build()) {
            equal(sentBy(client), "Bearer one");
            Files.writeString(file, "two");
            equal(sentBy(client), "Bearer two");
            Files.writeString(file, "not\none line");
            equal(sentBy(client), "Bearer two");
            Files.writeString(file, "");
            equal(sentBy(client), "Bearer two");
            Files.delete(file);
            equal(sentBy(client), "Bearer two");
        }
    }

    @Test
    void aTokenThatNoHeaderCanHaveIsRefusedAndNotShown() {
        IllegalArgumentException error = thrown(IllegalArgumentException.class,
                () -> OdometerClient.builder().token("secret\nword"));
        check(!error.getMessage().contains("secret"), error);
    }

    @Test
    void anAddressThatIsNoneIsRefused() {
        for (String url : List.of("", "host:8080", "ftp://host", "http://", "http://host:0",
                "http://host:99999", "http://a b", "http://host?x=1", "http://host#x",
                "http://user@host", "http://under_score")) {
            thrown(IllegalArgumentException.class, () -> OdometerClient.builder(url));
        }
        OdometerClient.builder("http://host", "https://[::1]:8443/below/").build();
    }

    @Test
    void anAuthorityThatIsNoneIsRefused() throws IOException {
        thrown(IllegalArgumentException.class,
                () -> OdometerClient.builder().caFile(file).build());
        Files.writeString(file, "no certificate");
        thrown(IllegalArgumentException.class,
                () -> OdometerClient.builder().caFile(file).build());
    }

    @Test
    void aFirstSizeIsOneAtLeast() {
        thrown(IllegalArgumentException.class, () -> OdometerClient.builder().initialSize(0));
    }
}
