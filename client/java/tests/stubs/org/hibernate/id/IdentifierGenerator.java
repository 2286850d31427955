package org.hibernate.id;

import org.hibernate.engine.spi.SharedSessionContractImplementor;
import org.hibernate.generator.Generator;

/** Stands for the interface of Hibernate. Its other methods have a default. */
public interface IdentifierGenerator extends Generator {
    Object generate(SharedSessionContractImplementor session, Object object);
}
