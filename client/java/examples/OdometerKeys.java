package examples;

import com.baomidou.mybatisplus.core.incrementer.IdentifierGenerator;
import odometer.client.OdometerClient;

/**
 * Lets MyBatis-Plus take ids from a sequence that has the name of the entity's class.
 *
 * <p>Make it a bean, and mark the id with `@TableId(type = IdType.ASSIGN_ID)`.
 */
public class OdometerKeys implements IdentifierGenerator {
    private final OdometerClient client;

    public OdometerKeys(OdometerClient client) {
        this.client = client;
    }

    @Override
    public Number nextId(Object entity) {
        return client.sequence(entity.getClass().getSimpleName()).next();
    }
}
