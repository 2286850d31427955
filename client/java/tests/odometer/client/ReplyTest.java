package odometer.client;

import static odometer.client.Tests.equal;
import static odometer.client.Tests.thrown;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import odometer.client.OdometerClient.CallFailed;
import odometer.client.Tests.Test;

/** Tests how replies are read. */
final class ReplyTest {
    private static Reply reply(String body) {
        return new Reply((Map<?, ?>) Reply.Json.read(body), "http://a");
    }

    private static String range(String first, String last, String count, String step) {
        return "{\"first\":" + first + ",\"last\":" + last + ",\"count\":" + count + ",\"step\":"
                + step + "}";
    }

    @Test
    void jsonIsRead() {
        equal(Reply.Json.read(" { \"a\" : [ 1 , -2.5e1, true,false,null, {} , [] ] } "),
                Map.of("a", Arrays.asList(1L, -25.0, true, false, null, Map.of(), List.of())));
        equal(Reply.Json.read("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u20aC\\ud83d\\ude00\""),
                "\"\\/\b\f\n\r\t\u20ac\ud83d\ude00");
        equal(Reply.Json.read("9223372036854775807"), Long.MAX_VALUE);
        equal(Reply.Json.read("-9223372036854775808"), Long.MIN_VALUE);
        equal(Reply.Json.read("9223372036854775808"), 0x1p63);
    }

    @Test
    void whatIsNoJsonIsRefused() {
        List<String> texts = List.of(
                "", " ", "{", "[1,]", "{\"a\"}", "{\"a\":1,}", "{a:1}", "[1 2]", "01",
                "+1", ".5", "1.", "1e", "-", "NaN", "tru", "nulll", "\"", "\"\\\"", "\"\\x\"",
                "\"\\u12g4\"", "\"\\u+123\"", "\"\n\"", "'a'", "{} {}", "[".repeat(65));
        for (String text : texts) {
            thrown(IllegalArgumentException.class, () -> Reply.Json.read(text));
        }
    }

    @Test
    void rangesAreReadWithTheirIds() {
        Reply reply = reply("{\"ranges\":[" + range("\"1\"", "\"2\"", "2", "1") + ","
                + range("\"10\"", "\"10\"", "1", "5") + "],\"ids\":[\"a\",\"b\",\"c\"]}");
        List<Stock.Run> runs = reply.runs(true);
        equal(runs.get(0).take().printed() + runs.get(0).take().printed(), "ab");
        Stock.Item last = runs.get(1).take();
        equal(last.value + last.printed(), "10c");
        equal(reply.runs(false).get(0).take().printed(), "1");
    }

    @Test
    void aRangeThatDoesNotFitIsRefused() {
        String largest = "\"9223372036854775807\"";
        List<String> ranges = List.of(
                range("\"1\"", "\"3\"", "2", "1"),
                range("\"1\"", "\"0\"", "0", "1"),
                range("\"1\"", "\"1\"", "2", "0"),
                range(largest, "\"-9223372036854775808\"", "2", "1"),
                range("\"1\"", "\"9223372036854775808\"", "2", "1"),
                range("1.5", "\"2\"", "2", "1"),
                range("\"one\"", "\"2\"", "2", "1"),
                "{}", "7");
        for (String wrong : ranges) {
            CallFailed failure = thrown(CallFailed.class,
                    () -> reply("{\"ranges\":[" + wrong + "]}").runs(false));
            equal(failure.code() + failure.isRetryable(), "invalid_replyfalse");
        }
        equal(reply("{\"ranges\":[" + range(largest, largest, "1", "1") + "]}").runs(false).get(0)
                .take().value, Long.MAX_VALUE);
    }

    @Test
    void aReplyThatLacksSomethingIsRefused() {
        String one = range("\"1\"", "\"2\"", "2", "1");
        for (String wrong : List.of("{\"ranges\":[]}", "{\"ranges\":7}", "{}",
                "{\"ranges\":[" + one + "]}", "{\"ranges\":[" + one + "],\"ids\":[\"a\"]}",
                "{\"ranges\":[" + one + "],\"ids\":[\"a\",2]}")) {
            thrown(CallFailed.class, () -> reply(wrong).runs(true));
        }
        for (String wrong : List.of("{}", "{\"value\":\"1\"}", "{\"id\":\"1\"}",
                "{\"id\":1,\"value\":\"1\"}")) {
            thrown(CallFailed.class, () -> reply(wrong).one());
        }
    }
}
