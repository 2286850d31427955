package odometer.client;

import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import odometer.client.OdometerClient.CallFailed;

/** A reply of success. Its methods throw {@link CallFailed} if they cannot read it. */
final class Reply {
    final Map<?, ?> body;
    final String endpoint;

    Reply(Map<?, ?> body, String endpoint) {
        this.body = body;
        this.endpoint = endpoint;
    }

    /** Reads a response. A null body had too many bytes. */
    static Reply of(HttpResponse<byte[]> response, String endpoint) {
        int status = response.statusCode();
        boolean isSuccess = status >= 200 && status <= 299;
        Object body = null;
        try {
            if (response.body() != null) {
                body = Json.read(new String(response.body(), StandardCharsets.UTF_8));
            }
        } catch (IllegalArgumentException noJson) {
            // A balancer answers with a page. The status says enough.
        }
        if (isSuccess && body instanceof Map) {
            return new Reply((Map<?, ?>) body, endpoint);
        }
        if (isSuccess) {
            throw CallFailed.invalid(endpoint, "answered " + status + " without a JSON object");
        }
        throw refusal(response, body instanceof Map ? (Map<?, ?>) body : Map.of(), endpoint);
    }

    private static CallFailed refusal(HttpResponse<?> response, Map<?, ?> body, String endpoint) {
        int status = response.statusCode();
        String code = text(body.get("code"), "http_" + status);
        String detail = text(body.get("detail"), "no reason given");
        return new CallFailed(
                endpoint + " answered " + status + " " + code + ": " + detail,
                endpoint,
                code,
                status,
                wholeOrZero(body.get("limit")),
                wholeOrZero(response.headers().firstValue("Retry-After").orElse("")),
                null);
    }

    private static String text(Object value, String instead) {
        return value instanceof String ? (String) value : instead;
    }

    private static long wholeOrZero(Object value) {
        String text = text(value, "");
        return text.matches("[0-9]{1,18}") ? Long.parseLong(text) : 0;
    }

    /** Reads the reply to a call for one number. */
    Stock.Item one() {
        if (!(body.get("id") instanceof String)) {
            throw CallFailed.invalid(endpoint, "gave no id");
        }
        return new Stock.Item(whole(body, "value"), (String) body.get("id"));
    }

    /** Reads a batch or a block. There is at least one number. */
    List<Stock.Run> runs(boolean withIds) {
        Object ranges = body.containsKey("ranges") ? body.get("ranges") : List.of(body);
        Object ids = withIds ? body.get("ids") : List.of();
        if (!(ranges instanceof List) || !(ids instanceof List)) {
            throw CallFailed.invalid(endpoint, "gave no ranges, or no ids");
        }
        List<Stock.Run> runs = new ArrayList<>();
        Iterator<?> printed = ((List<?>) ids).iterator();
        for (Object range : (List<?>) ranges) {
            runs.add(run(range, withIds ? printed : null));
        }
        if (runs.isEmpty()) {
            throw CallFailed.invalid(endpoint, "gave no numbers");
        }
        return runs;
    }

    private Stock.Run run(Object range, Iterator<?> ids) {
        Map<?, ?> fields = range instanceof Map ? (Map<?, ?>) range : Map.of();
        long first = whole(fields, "first");
        long last = whole(fields, "last");
        long step = whole(fields, "step");
        long count = whole(fields, "count");
        boolean isRight;
        try {
            long length = Math.multiplyExact(count - 1, step);
            isRight = count >= 1 && step != 0 && Math.addExact(first, length) == last;
        } catch (ArithmeticException beyond64Bits) {
            isRight = false;
        }
        if (!isRight) {
            throw CallFailed.invalid(endpoint, "gave a range that is none: " + fields);
        }
        return new Stock.Run(first, step, count, ids == null ? null : idsOf(count, ids));
    }

    private Iterator<String> idsOf(long count, Iterator<?> ids) {
        List<String> printed = new ArrayList<>();
        while (printed.size() < count) {
            Object id = ids.hasNext() ? ids.next() : null;
            if (!(id instanceof String)) {
                throw CallFailed.invalid(endpoint, "gave fewer ids than numbers");
            }
            printed.add((String) id);
        }
        return printed.iterator();
    }

    private long whole(Map<?, ?> fields, String name) {
        Object value = fields.get(name);
        try {
            return value instanceof Long ? (Long) value : Long.parseLong(text(value, ""));
        } catch (NumberFormatException error) {
            throw CallFailed.invalid(endpoint, "gave no whole number as " + name);
        }
    }

    /** Reads JSON strictly (RFC 8259). */
    static final class Json {
        private static final int MAX_DEPTH = 64;
        private static final Pattern NUMBER = Pattern
                .compile("(-?(?:0|[1-9][0-9]*))(\\.[0-9]+)?([eE][+-]?[0-9]+)?");
        private static final String ESCAPES = "\"\\/bfnrt";
        private static final String ESCAPED = "\"\\/\b\f\n\r\t";

        private final String text;
        private int at;

        private Json(String text) {
            this.text = text;
        }

        /**
         * Returns a Map, a List, a String, a Boolean, null, a Long, or a Double if a number is not
         * whole or has more than 64 bits. Throws IllegalArgumentException if the text is no JSON.
         */
        static Object read(String text) {
            Json json = new Json(text);
            Object value = json.value(0);
            json.space();
            json.require(json.at == text.length());
            return value;
        }

        private Object value(int depth) {
            require(depth < MAX_DEPTH);
            space();
            switch (at < text.length() ? text.charAt(at) : ' ') {
                case '{':
                    return object(depth);
                case '[':
                    return list(depth);
                case '"':
                    return string();
                case 't':
                    return word("true", true);
                case 'f':
                    return word("false", false);
                case 'n':
                    return word("null", null);
                default:
                    return number();
            }
        }

        private Map<String, Object> object(int depth) {
            Map<String, Object> fields = new HashMap<>();
            at++;
            space();
            if (goesOnWith('}')) {
                return fields;
            }
            do {
                space();
                String name = string();
                space();
                require(goesOnWith(':'));
                fields.put(name, value(depth + 1));
                space();
            } while (goesOnWith(','));
            require(goesOnWith('}'));
            return fields;
        }

        private List<Object> list(int depth) {
            List<Object> values = new ArrayList<>();
            at++;
            space();
            if (goesOnWith(']')) {
                return values;
            }
            do {
                values.add(value(depth + 1));
                space();
            } while (goesOnWith(','));
            require(goesOnWith(']'));
            return values;
        }

        private String string() {
            require(goesOnWith('"'));
            StringBuilder string = new StringBuilder();
            while (!goesOnWith('"')) {
                require(at < text.length() && text.charAt(at) >= ' ');
                char next = text.charAt(at++);
                string.append(next == '\\' ? escaped() : next);
            }
            return string.toString();
        }

        private char escaped() {
            if (!goesOnWith('u')) {
                int index = at < text.length() ? ESCAPES.indexOf(text.charAt(at++)) : -1;
                require(index >= 0);
                return ESCAPED.charAt(index);
            }
            require(text.length() - at >= 4);
            String digits = text.substring(at, at + 4);
            require(digits.matches("[0-9a-fA-F]{4}"));
            at += 4;
            return (char) Integer.parseInt(digits, 16);
        }

        private Object word(String word, Object value) {
            require(text.startsWith(word, at));
            at += word.length();
            return value;
        }

        private Object number() {
            Matcher found = NUMBER.matcher(text).region(at, text.length());
            require(found.lookingAt());
            at = found.end();
            if (found.group(2) == null && found.group(3) == null) {
                try {
                    return Long.valueOf(found.group());
                } catch (NumberFormatException beyond64Bits) {
                    return Double.valueOf(found.group());
                }
            }
            return Double.valueOf(found.group());
        }

        private void space() {
            while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
                at++;
            }
        }

        private boolean goesOnWith(char wanted) {
            boolean isThere = at < text.length() && text.charAt(at) == wanted;
            at += isThere ? 1 : 0;
            return isThere;
        }

        private void require(boolean isRight) {
            if (!isRight) {
                throw new IllegalArgumentException("no JSON at character " + at);
            }
        }
    }
}
