package odometer.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import odometer.client.OdometerClient.Kind;
import odometer.client.OdometerClient.OdometerException;

/**
 * Takes numbers as a test says, one step a line. It is not in the jar.
 *
 * <p>Start it with one argument, a JSON object of options. It prints `ready`, and one line for each
 * step that it reads.
 */
final class Driver {
    private final Recorder recorder = new Recorder();
    private final OdometerClient client;
    private final Sequence sequence;

    private Driver(Map<?, ?> options) {
        String[] endpoints = ((List<?>) options.get("endpoints")).stream().map(String::valueOf)
                .toArray(String[]::new);
        OdometerClient.Builder builder = OdometerClient.builder(endpoints).hooks(recorder);
        if (options.containsKey("token")) {
            builder.token(options.get("token").toString());
        }
        if (options.containsKey("ca_file")) {
            builder.caFile(Path.of(options.get("ca_file").toString()));
        }
        if (options.containsKey("deadline_ms")) {
            builder.deadline(Duration.ofMillis((Long) options.get("deadline_ms")));
        }
        if (options.containsKey("refill_timeout_ms")) {
            builder.refillTimeout(Duration.ofMillis((Long) options.get("refill_timeout_ms")));
        }
        if (options.containsKey("max_age_ms")) {
            builder.maxAge(Duration.ofMillis((Long) options.get("max_age_ms")));
        }
        if (options.containsKey("initial_size")) {
            builder.initialSize(((Long) options.get("initial_size")).intValue());
        }
        Object kind = options.get("kind");
        client = builder.build();
        sequence = client.sequence(options.get("sequence").toString(),
                kind == null ? null : Kind.valueOf(kind.toString().toUpperCase(Locale.ROOT)));
    }

    public static void main(String[] arguments) throws IOException {
        loadClasses();
        Driver driver = new Driver((Map<?, ?>) Reply.Json.read(arguments[0]));
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

    private String answer(String[] step) {
        int count = step.length > 1 ? Integer.parseInt(step[1]) : 0;
        switch (step[0]) {
            case "take":
                return new Given().take(count, sequence::take).toString();
            case "next":
                return new Given().take(count, sequence::next).toString();
            case "async":
                return atOnce(count).toString();
            case "range":
                return unbroken(count);
            case "warm":
                return warm(count);
            case "threads":
                return inThreads(count, Integer.parseInt(step[2])).toString();
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

    private Given atOnce(int count) {
        List<CompletableFuture<Long>> asked = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            asked.add(sequence.nextAsync());
        }
        Given given = new Given();
        for (CompletableFuture<Long> each : asked) {
            try {
                given.numbers.add(each.join());
            } catch (CompletionException failure) {
                given.fail((OdometerException) failure.getCause());
            }
        }
        return given;
    }

    private Given inThreads(int nThreads, int count) {
        List<Given> parts = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < nThreads; i++) {
            Given part = new Given();
            parts.add(part);
            threads.add(new Thread(() -> part.take(count, sequence::next)));
        }
        threads.forEach(Thread::start);
        Given whole = new Given();
        try {
            for (Thread thread : threads) {
                thread.join();
            }
        } catch (InterruptedException never) {
            throw new IllegalStateException(never);
        }
        for (Given part : parts) {
            whole.numbers.addAll(part.numbers);
            whole.error = whole.error == null ? part.error : whole.error;
        }
        return whole;
    }

    private String unbroken(int count) {
        try {
            Sequence.Range found = sequence.range(count);
            return "given " + found.first() + "-" + found.last();
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
            sequence.warm(count);
            return "done";
        } catch (OdometerException error) {
            return "error " + error.code();
        }
    }

    /** Numbers in the order given, and the first error. */
    private static final class Given {
        final List<Long> numbers = new ArrayList<>();
        String error;

        Given take(int count, LongSupplier take) {
            try {
                for (int i = 0; i < count; i++) {
                    numbers.add(take.getAsLong());
                }
            } catch (OdometerException failure) {
                fail(failure);
            }
            return this;
        }

        void fail(OdometerException failure) {
            error = error == null ? failure.code() : error;
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
