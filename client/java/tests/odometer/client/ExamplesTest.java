package odometer.client;

import static odometer.client.Tests.check;
import static odometer.client.Tests.equal;

import com.sun.source.util.JavacTask;
import examples.OdometerId;
import examples.OdometerIdGenerator;
import examples.OdometerKeys;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import javax.tools.DiagnosticCollector;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;
import odometer.client.Tests.Test;
import org.hibernate.annotations.IdGeneratorType;

/** Tests the snippets, against stubs of the interfaces that they implement. */
final class ExamplesTest implements AutoCloseable {
    private final StubService stub = new StubService();
    private final OdometerClient client = OdometerClient.builder(stub.url)
            .deadline(Duration.ofSeconds(10)).build();

    ExamplesTest() throws IOException {}

    @Override
    public void close() throws IOException {
        client.close();
        stub.close();
    }

    private static final class Order {
        @OdometerId("orders")
        private Long id;
    }

    @Test
    void hibernateGetsTheNextNumberOfTheSequenceThatAFieldNames() throws Exception {
        OdometerId config = Order.class.getDeclaredField("id").getAnnotation(OdometerId.class);
        IdGeneratorType type = OdometerId.class.getAnnotation(IdGeneratorType.class);
        equal(type.value(), OdometerIdGenerator.class);
        OdometerIdGenerator.use(client);
        OdometerIdGenerator generator = (OdometerIdGenerator) type.value()
                .getConstructor(OdometerId.class).newInstance(config);
        equal(generator.generate(null, new Order()), 1L);
        equal(stub.calls.get(0), "GET orders");
    }

    @Test
    void myBatisPlusGetsTheNextNumberOfTheEntity() {
        OdometerKeys keys = new OdometerKeys(client);
        equal(keys.nextId(new Order()), 1L);
        equal(stub.calls.get(0), "GET Order");
    }

    /** Returns the programs of a document: what is in Java, and says what it imports. */
    private static List<String> programsIn(String document) {
        return Pattern.compile("```java\n(import .*?)```", Pattern.DOTALL).matcher(document)
                .results().map((MatchResult found) -> found.group(1)).collect(Collectors.toList());
    }

    /** Returns what the compiler says of the statements of a program. */
    private static String saidOf(String program) {
        String imports = program.lines().filter(line -> line.startsWith("import "))
                .collect(Collectors.joining("\n"));
        String statements = program.lines().filter(line -> !line.startsWith("import "))
                .collect(Collectors.joining("\n"));
        String source = imports + "\nfinal class Program { static void run() throws Exception {\n"
                + statements + "\n}}\n";
        JavaFileObject file = new SimpleJavaFileObject(
                URI.create("string:///Program.java"), JavaFileObject.Kind.SOURCE) {
            @Override
            public CharSequence getCharContent(boolean ignoresErrors) {
                return source;
            }
        };
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        DiagnosticCollector<JavaFileObject> said = new DiagnosticCollector<>();
        List<String> options = List.of(
                "-proc:none", "-Xlint:all", "-cp", System.getProperty("java.class.path"));
        JavaCompiler.CompilationTask task = compiler.getTask(
                null, null, said, options, null, List.of(file));
        try {
            // It writes no class.
            ((JavacTask) task).analyze();
        } catch (IOException never) {
            throw new UncheckedIOException(never);
        }
        return said.getDiagnostics().stream().map(Object::toString)
                .collect(Collectors.joining("\n"));
    }

    @Test
    void theProgramsOfTheReadmeCompile() throws Exception {
        List<String> programs = programsIn(Files.readString(Path.of("README.md")));
        check(programs.size() >= 2, "vacuous: " + programs);
        for (String program : programs) {
            equal(saidOf(program), "");
            String wrong = program.replace("client", "nobody's");
            check(!saidOf(wrong).isEmpty(), "vacuous: it compiles, too: " + wrong);
        }
    }
}
