package examples;

import odometer.client.OdometerClient;
import org.hibernate.engine.spi.SharedSessionContractImplementor;
import org.hibernate.id.IdentifierGenerator;

/** Lets Hibernate (6.2 and later) take ids from a sequence. Hibernate makes one for each field. */
public class OdometerIdGenerator implements IdentifierGenerator {
    private static final long serialVersionUID = 1L;
    private static volatile OdometerClient client;

    private final String sequence;

    public OdometerIdGenerator(OdometerId config) {
        sequence = config.value();
    }

    /** Sets the client. Call it before you save the first entity. */
    public static void use(OdometerClient given) {
        client = given;
    }

    @Override
    public Object generate(SharedSessionContractImplementor session, Object entity) {
        return client.sequence(sequence).next();
    }
}
