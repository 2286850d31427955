package odometer.client;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.stream.Stream;

/** Runs all tests of the library. It needs the JDK alone, and so no framework. */
final class Tests {
    private static final double LIMIT_SECONDS = 10;
    private static final List<Class<?>> CLASSES = List.of(
            EndpointsTest.class, SequenceTest.class, StackTest.class, ReplyTest.class,
            TransportTest.class, ClientTest.class, ReplicasTest.class, ForgetTest.class,
            HooksTest.class, ThreadsTest.class, OptionsTest.class, ExamplesTest.class);
    /** What is logged on purpose. A logger that nothing refers to forgets its level. */
    private static final Logger LOG = Logger.getLogger("odometer.client");

    private Tests() {}

    /** Marks a test. Each one has an object of its own, which is closed after it. */
    @Retention(RetentionPolicy.RUNTIME)
    @interface Test {}

    public static void main(String[] arguments) throws Exception {
        LOG.setLevel(Level.OFF);
        try (Stream<Path> files = Files.list(Path.of("tests/odometer/client"))) {
            equal(files.filter(file -> file.toString().endsWith("Test.java")).count(),
                    (long) CLASSES.size());
        }
        double began = OdometerClient.now();
        int nTests = 0;
        int nFailures = 0;
        for (Class<?> each : CLASSES) {
            Method[] methods = each.getDeclaredMethods();
            Arrays.sort(methods, Comparator.comparing(Method::getName));
            for (Method method : methods) {
                if (method.isAnnotationPresent(Test.class)) {
                    nTests++;
                    nFailures += passes(each, method) ? 0 : 1;
                }
            }
        }
        System.err.printf("Ran %d tests in %.1f s%n", nTests, OdometerClient.now() - began);
        System.err.println(nFailures == 0 ? "OK" : nFailures + " FAILED");
        System.exit(nFailures == 0 ? 0 : 1);
    }

    private static boolean passes(Class<?> of, Method test) throws Exception {
        Object object = of.getDeclaredConstructor().newInstance();
        try {
            test.invoke(object);
            return true;
        } catch (InvocationTargetException failure) {
            System.err.println("FAILED: " + of.getSimpleName() + "." + test.getName());
            failure.getCause().printStackTrace();
            return false;
        } finally {
            if (object instanceof AutoCloseable) {
                ((AutoCloseable) object).close();
            }
        }
    }

    static void equal(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError("found " + found + " instead of " + wanted);
        }
    }

    static void check(boolean isRight, Object what) {
        if (!isRight) {
            throw new AssertionError(what);
        }
    }

    /** Returns the exception of this class that the work must throw. */
    static <E extends Throwable> E thrown(Class<E> wanted, Callable<?> work) {
        Object given;
        try {
            given = work.call();
        } catch (Throwable error) {
            if (wanted.isInstance(error)) {
                return wanted.cast(error);
            }
            throw new AssertionError("another error than " + wanted, error);
        }
        throw new AssertionError("no " + wanted.getSimpleName() + " but " + given);
    }

    /** Returns the code of the exception that the work must throw. */
    static String code(Callable<?> work) {
        return thrown(OdometerClient.OdometerException.class, work).code();
    }

    /** Waits until something is true. */
    static void until(String what, Callable<Boolean> isTrue) throws Exception {
        double limit = OdometerClient.now() + LIMIT_SECONDS;
        while (!isTrue.call()) {
            check(OdometerClient.now() < limit, "it never came that " + what);
            Thread.sleep(1);
        }
    }
}
