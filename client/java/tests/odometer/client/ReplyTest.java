package odometer.client;

import static odometer.client.Tests.equal;
import static odometer.client.Tests.thrown;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import odometer.client.OdometerClient.Endpoints;
import odometer.client.OdometerClient.Json;
import odometer.client.OdometerClient.OdometerException;
import odometer.client.OdometerClient.Reply;
import odometer.client.OdometerClient.Run;
import odometer.client.Tests.Test;

/** Tests how replies are read. */
final class ReplyTest {
    private static final String LARGEST = "\"9223372036854775807\"";

    private final OdometerClient client = OdometerClient.builder().build();
    private final Endpoints endpoints = new Endpoints(List.of("a"), () -> 0, () -> 0);

    private Reply reply(int status, String body) {
        return client.new Reply(
                endpoints.choose(), status, body.getBytes(StandardCharsets.UTF_8));
    }

    private Reply reply(String body) {
        return reply(200, body);
    }

    private static String range(String first, String last, String count, String step) {
        return "{\"first\":" + first + ",\"last\":" + last + ",\"count\":" + count + ",\"step\":"
                + step + "}";
    }

    private static String ranges(String... all) {
        return "{\"ranges\":[" + String.join(",", all) + "]}";
    }

    private static BigDecimal number(String digits) {
        return new BigDecimal(digits);
    }

    @Test
    void jsonIsRead() {
        equal(Json.read(" { \"a\" : [ 1 , -2.5e1, true,false,null, {} , [] ] } "),
                Map.of("a", Arrays.asList(number("1"), number("-2.5e1"), true, false, null,
                        Map.of(), List.of())));
        equal(Json.read("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u20aC\\ud83d\\ude00$1\\\\1\""),
                "\"\\/\b\f\n\r\t\u20ac\ud83d\ude00$1\\1");
        equal(Json.read("-9223372036854775808"), number("-9223372036854775808"));
        equal(Json.read("[".repeat(63) + "]".repeat(63)) instanceof List, true);
        // A long text takes no deeper stack than a short one.
        equal(Json.read("\"" + "a\\n".repeat(100_000) + "\""), "a\n".repeat(100_000));
    }

    @Test
    void whatIsNoJsonIsRefused() {
        List<String> texts = List.of(
                "", " ", "{", "[1,]", "[,1]", "{\"a\"}", "{\"a\":1,}", "{,}", "{a:1}", "[1 2]",
                "{1:2}", "{\"a\" \"b\"}", "[}", "{]", "01", "+1", ".5", "1.", "1e", "-", "NaN",
                "tru", "nulll", "\"", "\"\\\"", "\"\\x\"", "\"\\u12g4\"", "\"\\u+123\"", "\"\n\"",
                "'a'", "{} {}", ":", ",", "\u00a01", "1e99999999999", "[".repeat(65));
        for (String text : texts) {
            thrown(IllegalArgumentException.class, () -> Json.read(text));
        }
    }

    @Test
    void rangesAreReadWithTheirIds() {
        Reply reply = reply("{\"ranges\":[" + range("\"1\"", "\"2\"", "2", "1") + ","
                + range("\"10\"", "\"10\"", "1", "5") + "],\"ids\":[\"a\",\"b\",\"c\"]}");
        List<Run> runs = reply.runs(true);
        equal(runs.get(0).ids.subList(0, 2), List.of("a", "b"));
        equal(runs.get(1).first + " " + runs.get(1).count + runs.get(1).ids, "10 1[c]");
        equal(reply.runs(false).get(0).ids, null);
        Run last = reply(ranges(range(LARGEST, LARGEST, "1", "1"))).runs(false).get(0);
        equal(last.first, Long.MAX_VALUE);
        equal(reply(range("\"7\"", "\"8\"", "2", "1")).range(2).first, 7L);
    }

    @Test
    void aRangeThatDoesNotFitIsRefused() {
        List<String> wrong = List.of(
                range("\"1\"", "\"3\"", "2", "1"),
                range("\"1\"", "\"0\"", "0", "1"),
                range("\"1\"", "\"1\"", "2", "0"),
                range(LARGEST, "\"-9223372036854775808\"", "2", "1"),
                range("\"1\"", "\"9223372036854775808\"", "2", "1"),
                range("1.5", "\"2\"", "2", "1"),
                range("1e99", "\"2\"", "2", "1"),
                range("\"one\"", "\"2\"", "2", "1"),
                range("true", "\"2\"", "2", "1"),
                "{}", "7");
        for (String each : wrong) {
            OdometerException failure = thrown(OdometerException.class,
                    () -> reply(ranges(each)).runs(false));
            equal(failure.code() + failure.isRetryable(), "invalid_replyfalse");
        }
        thrown(OdometerException.class, () -> reply(ranges(range("1", "2", "2", "1"))).range(3));
    }

    @Test
    void aReplyThatLacksSomethingIsRefused() {
        String one = range("\"1\"", "\"2\"", "2", "1");
        for (String wrong : List.of("{\"ranges\":[]}", "{\"ranges\":7}", "{\"a\":1}", ranges(one),
                "{\"ranges\":[" + one + "],\"ids\":[\"a\"]}",
                "{\"ranges\":[" + one + "],\"ids\":[\"a\",2]}")) {
            thrown(OdometerException.class, () -> reply(wrong).runs(true));
        }
        for (String wrong : List.of("{\"a\":1}", "{\"value\":\"1\"}", "{\"id\":\"1\"}",
                "{\"id\":1,\"value\":\"1\"}")) {
            thrown(OdometerException.class, () -> reply(wrong).one());
        }
    }

    private String refusal(int status, String body) {
        OdometerException found = reply(status, body).refusal(Optional.of("3"));
        return found == null ? "none" : found.code() + " " + found.isRetryable();
    }

    @Test
    void aRefusalHasTheCodeOfTheServiceOrTheStatus() {
        equal(refusal(200, "{\"a\":1}"), "none");
        equal(refusal(204, ""), "invalid_reply false");
        equal(refusal(200, "<html>"), "invalid_reply false");
        equal(refusal(410, "{\"code\":\"sequence_retired\"}"), "sequence_retired false");
        equal(refusal(302, ""), "http_302 false");
        equal(refusal(503, "{\"code\":7}"), "http_503 true");
    }
}
