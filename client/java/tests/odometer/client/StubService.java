package odometer.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;

/** Answers as the service would, or as a test says. It gives the numbers 1, 2, 3 and so on. */
final class StubService implements AutoCloseable {
    /** Closes the connection without a reply. */
    static final String CUT = "";

    final List<String> calls = new CopyOnWriteArrayList<>();
    /** The headers of each call, with names in lower case. */
    final List<Map<String, String>> headers = new CopyOnWriteArrayList<>();
    final AtomicInteger nOpened = new AtomicInteger();
    final AtomicInteger nClosed = new AtomicInteger();
    final String url;
    volatile String definition = definition("{value}", "relaxed");
    volatile long step = 1;
    /** Whether each connection is closed after its first reply. */
    volatile boolean closes;
    /** Gets each call, and may return a whole reply. Null: the stub answers. */
    volatile Function<String, String> answer = call -> null;
    private final ServerSocket listener;
    private long next = 1;

    StubService() throws IOException {
        listener = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
        url = "http://127.0.0.1:" + listener.getLocalPort();
        inThread(() -> {
            while (true) {
                Socket socket = listener.accept();
                socket.setTcpNoDelay(true);
                nOpened.incrementAndGet();
                inThread(() -> serve(socket));
            }
        });
    }

    @Override
    public void close() throws IOException {
        listener.close();
    }

    static String definition(String format, String order) {
        return "{\"name\":\"orders\",\"definition\":{\"kind\":\"block\",\"order\":\"" + order
                + "\",\"period\":\"none\",\"format\":\"" + format + "\"}}";
    }

    static String reply(int status, String body) {
        return "HTTP/1.1 " + status + " Said\r\nContent-Type: application/json\r\nContent-Length: "
                + body.length() + "\r\n\r\n" + body;
    }

    static String refusal(int status, String code) {
        return reply(status, "{\"code\":\"" + code + "\",\"detail\":\"The stub said so.\"}");
    }

    /** Returns the calls for numbers. */
    List<String> posts() {
        List<String> posts = new ArrayList<>(calls);
        posts.removeIf(call -> !call.startsWith("POST"));
        return posts;
    }

    /** Takes numbers, and returns the first of them. */
    synchronized long taken(long count) {
        long first = next;
        next += count * step;
        return first;
    }

    private interface Work {
        void run() throws IOException;
    }

    private static void inThread(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException gone) {
                // The test is over, or the other side has closed the connection.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void serve(Socket socket) throws IOException {
        try (socket) {
            BufferedReader reader = new BufferedReader(
                    new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII));
            OutputStream writer = socket.getOutputStream();
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                Map<String, String> found = new HashMap<>();
                for (String header = reader.readLine(); !header.isEmpty();
                        header = reader.readLine()) {
                    String[] parts = header.split(": ?", 2);
                    found.put(parts[0].toLowerCase(Locale.ROOT), parts[1]);
                }
                String[] words = line.split(" ");
                String call = words[0] + " " + words[1].replaceFirst(".*/", "");
                calls.add(call);
                headers.add(found);
                String said = answer.apply(call);
                said = said != null ? said : reply(200, given(call));
                writer.write(said.getBytes(StandardCharsets.US_ASCII));
                if (closes || said.equals(CUT)) {
                    return;
                }
            }
        } finally {
            nClosed.incrementAndGet();
        }
    }

    private String given(String call) {
        if (call.startsWith("GET")) {
            return definition;
        }
        String whole = "{\"sequence\":\"orders\",\"period\":null,";
        if (!call.matches(".*(count|size)=.*")) {
            long value = taken(1);
            return whole + "\"value\":\"" + value + "\",\"id\":\"#" + value + "\"}";
        }
        long count = Long.parseLong(call.replaceFirst(".*(count|size)=([0-9]+).*", "$2"));
        long first = taken(count);
        String range = "\"first\":\"" + first + "\",\"last\":\"" + (first + (count - 1) * step)
                + "\",\"count\":" + count + ",\"step\":" + step + "}";
        if (call.contains("size=")) {
            return whole + range;
        }
        List<String> ids = new ArrayList<>();
        for (long value = first; !call.contains("ids=false") && ids.size() < count; value += step) {
            ids.add("\"#" + value + "\"");
        }
        return whole + "\"count\":" + count + ",\"ranges\":[{" + range + "],\"ids\":" + ids + "}";
    }
}
