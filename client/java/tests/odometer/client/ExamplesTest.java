package odometer.client;

import static odometer.client.Tests.equal;

import examples.OdometerId;
import examples.OdometerIdGenerator;
import examples.OdometerKeys;
import java.io.IOException;
import java.time.Duration;
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
}
