package odometer.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import odometer.client.OdometerClient.Kind;
import odometer.client.OdometerClient.OdometerException;
import odometer.client.OdometerClient.Sequence;

/**
 * Takes numbers as a test says, one step a line. It is not in the jar.
 *
 * <p>Start it with one argument, a JSON object of options. It prints `ready`, and one line for each
 * step that it reads. A JVM cannot fork, so `fork` starts a second driver.
 */
final class Driver {
    private final String options;
    private final boolean lacksForkHook;
    private final Duration deadline;
    private final Recorder recorder = new Recorder();
    private final OdometerClient client;
    private final Sequence sequence;

    private Driver(String json) throws IOException, GeneralSecurityException {
        options = json;
        Map<?, ?> given = (Map<?, ?>) OdometerClient.Json.read(json);
        lacksForkHook = Boolean.TRUE.equals(given.get("without_fork_hook"));
        deadline = millis(given, "deadline_ms", 2000);
        String[] endpoints = ((List<?>) given.get("endpoints")).stream().map(String::valueOf)
                .toArray(String[]::new);
        OdometerClient.Builder builder = OdometerClient.builder(endpoints).hooks(recorder)
                .deadline(deadline)
                .refillTimeout(millis(given, "refill_timeout_ms", 7000));
        if (given.containsKey("token")) {
            builder.token(given.get("token").toString());
        }
        if (given.containsKey("ca_file")) {
            builder.sslContext(trusting(Path.of(given.get("ca_file").toString())));
        }
        if (given.containsKey("max_age_ms")) {
            builder.maxAge(millis(given, "max_age_ms", 0));
        }
        if (given.containsKey("initial_size")) {
            builder.initialSize(((Number) given.get("initial_size")).longValue());
        }
        Object kind = given.get("kind");
        client = builder.build();
        sequence = client.sequence(given.get("sequence").toString(),
                kind == null ? null : Kind.valueOf(kind.toString().toUpperCase(Locale.ROOT)));
    }

    private static Duration millis(Map<?, ?> options, String name, long otherwise) {
        Object given = options.get(name);
        return Duration.ofMillis(given == null ? otherwise : ((Number) given).longValue());
    }

    /** Trusts the authorities of a file alone. */
    private static SSLContext trusting(Path file) throws IOException, GeneralSecurityException {
        KeyStore authorities = KeyStore.getInstance(KeyStore.getDefaultType());
        authorities.load(null, null);
        try (InputStream certificates = Files.newInputStream(file)) {
            authorities.setCertificateEntry("authority",
                    CertificateFactory.getInstance("X.509").generateCertificate(certificates));
        }
        TrustManagerFactory trust = TrustManagerFactory
                .getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(authorities);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    public static void main(String[] arguments) throws Exception {
        // The service closes idle connections after 75 s. JDKs before 20 keep them for longer.
        System.setProperty("jdk.httpclient.keepalive.timeout", "60");
        loadClasses();
        Driver driver = new Driver(arguments[0]);
        BufferedReader steps = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("ready");
        for (String step = steps.readLine(); step != null; step = steps.readLine()) {
            if (step.equals("exit")) {
                System.out.println("bye");
                return;
            }
            System.out.println(driver.answer(step.split(" ")));
        }
    }

    /**
     * Makes two calls to a server of its own. The first call of a JVM loads many classes, and on a
     * busy machine it would take longer than the timeouts of some tests.
     */
    private static void loadClasses() throws IOException {
        String body = "{\"definition\":{},\"value\":\"1\",\"id\":\"1\"}";
        String reply = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + body.length()
                + "\r\n\r\n" + body;
        try (ServerSocket listener = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
            Thread server = new Thread(() -> {
                for (int nCalls = 0; nCalls < 2; nCalls++) {
                    try (Socket socket = listener.accept()) {
                        BufferedReader request = new BufferedReader(new InputStreamReader(
                                socket.getInputStream(), StandardCharsets.US_ASCII));
                        while (!request.readLine().isEmpty()) {
                            // The call does not matter.
                        }
                        socket.getOutputStream().write(reply.getBytes(StandardCharsets.US_ASCII));
                    } catch (IOException error) {
                        throw new UncheckedIOException(error);
                    }
                }
            });
            server.setDaemon(true);
            server.start();
            try (OdometerClient client = OdometerClient
                    .builder("http://127.0.0.1:" + listener.getLocalPort())
                    .deadline(Duration.ofSeconds(30)).build()) {
                client.sequence("none").next();
            }
        }
    }

    private String answer(String[] step) throws Exception {
        int count = step.length > 1 ? Integer.parseInt(step[1]) : 0;
        switch (step[0]) {
            case "take":
                return new Given().take(count, sequence::take).toString();
            case "next":
                return new Given().take(count, sequence::next).toString();
            case "async":
                return inThreads(count, 1, true).toString();
            case "range":
                return unbroken(count);
            case "warm":
                return warm(count);
            case "threads":
                return inThreads(count, Integer.parseInt(step[2]), false).toString();
            case "fork":
                return lacksForkHook ? "unsupported" : inSecondProcess(count).toString();
            case "forget":
                client.forget();
                return "done";
            case "ids":
                return ids(count);
            case "readings":
                return String.format(
                        Locale.ROOT, "left %d rate %.1f", sequence.left(), sequence.rate());
            case "hooks":
                return recorder.report();
            default:
                return "unsupported";
        }
    }

    /** Takes numbers in threads. If they are in line, each waits before the next one starts. */
    private Given inThreads(int nThreads, int count, boolean areInLine)
            throws InterruptedException {
        List<Given> parts = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < nThreads; i++) {
            Given part = new Given();
            parts.add(part);
            Thread thread = new Thread(() -> part.take(count, sequence::next));
            threads.add(thread);
            thread.start();
            while (areInLine && thread.isAlive()
                    && thread.getState() != Thread.State.TIMED_WAITING) {
                Thread.sleep(1);
            }
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return Given.together(parts);
    }

    /** Takes numbers in this process, and as many in a second one. */
    private Given inSecondProcess(int count) throws IOException, InterruptedException {
        List<String> command = new ArrayList<>();
        command.add(ProcessHandle.current().info().command().orElseThrow());
        command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
        command.addAll(List.of("-cp", System.getProperty("java.class.path"),
                Driver.class.getName(), options));
        Process second = new ProcessBuilder(command)
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        second.getOutputStream().write(("next " + count + "\nexit\n").getBytes(
                StandardCharsets.US_ASCII));
        second.getOutputStream().close();
        Given own = new Given().take(count, sequence::next);
        String said = new String(
                second.getInputStream().readAllBytes(), StandardCharsets.US_ASCII);
        Given others = new Given();
        String[] lines = said.split("\\R");
        if (second.waitFor() == 0 && lines.length == 3) {
            others.read(lines[1]);
        } else {
            others.error = "child";
        }
        return Given.together(List.of(own, others));
    }

    private String unbroken(int count) {
        try {
            long[] found = sequence.range(count).toArray();
            return "given " + found[0] + "-" + found[count - 1];
        } catch (OdometerException error) {
            return "given  error " + error.code();
        }
    }

    private String ids(int count) {
        StringBuilder words = new StringBuilder("ids");
        try {
            for (int i = 0; i < count; i++) {
                words.append(' ').append(sequence.nextId());
            }
        } catch (OdometerException error) {
            words.append(" error ").append(error.code());
        }
        return words.toString();
    }

    private String warm(int count) {
        try {
            sequence.warm(count, deadline);
            return "done";
        } catch (OdometerException error) {
            return "error " + error.code();
        }
    }

    /** Numbers in the order given, and the first error. */
    private static final class Given {
        final List<Long> numbers = new ArrayList<>();
        String error;

        static Given together(List<Given> parts) {
            Given whole = new Given();
            for (Given part : parts) {
                whole.numbers.addAll(part.numbers);
                whole.error = whole.error == null ? part.error : whole.error;
            }
            return whole;
        }

        Given take(int count, LongSupplier take) {
            try {
                for (int i = 0; i < count; i++) {
                    numbers.add(take.getAsLong());
                }
            } catch (OdometerException failure) {
                error = failure.code();
            }
            return this;
        }

        /** Reads what another driver has printed. */
        void read(String shown) {
            String[] words = shown.split(" ");
            for (String range : words[1].isEmpty() ? new String[0] : words[1].split(",")) {
                String[] ends = range.split("-");
                long last = Long.parseLong(ends[ends.length - 1]);
                for (long number = Long.parseLong(ends[0]); number <= last; number++) {
                    numbers.add(number);
                }
            }
            error = words.length > 3 ? words[3] : null;
        }

        @Override
        public String toString() {
            List<String> ranges = new ArrayList<>();
            int begin = 0;
            for (int at = 1; at <= numbers.size(); at++) {
                if (at == numbers.size() || numbers.get(at) != numbers.get(at - 1) + 1) {
                    boolean isOne = at - 1 == begin;
                    ranges.add(numbers.get(begin) + (isOne ? "" : "-" + numbers.get(at - 1)));
                    begin = at;
                }
            }
            String shown = "given " + String.join(",", ranges);
            return error == null ? shown : shown + " error " + error;
        }
    }

    /** Keeps what the hooks report, as JSON. */
    private static final class Recorder implements OdometerClient.Hooks {
        private final List<String> refills = new ArrayList<>();
        private final List<Double> waits = new ArrayList<>();
        private final List<String> drops = new ArrayList<>();

        @Override
        public synchronized void refill(
                String sequence, String endpoint, String outcome, double seconds, long count) {
            refills.add(String.format(Locale.ROOT,
                    "{\"endpoint\":\"%s\",\"outcome\":\"%s\",\"seconds\":%.6f,\"count\":%d}",
                    endpoint, outcome, seconds, count));
        }

        @Override
        public synchronized void waited(double seconds) {
            waits.add(seconds);
        }

        @Override
        public synchronized void dropped(long count, String cause) {
            drops.add("{\"count\":" + count + ",\"cause\":\"" + cause + "\"}");
        }

        synchronized String report() {
            String waited = waits.stream().map(String::valueOf).collect(Collectors.joining(","));
            String report = "{\"refills\":[" + String.join(",", refills) + "],\"waited\":[" + waited
                    + "],\"dropped\":[" + String.join(",", drops) + "]}";
            refills.clear();
            waits.clear();
            drops.clear();
            return report;
        }
    }
}
