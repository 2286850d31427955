package org.hibernate.engine.spi;

/** Stands for the interface of Hibernate. */
public interface SharedSessionContractImplementor {}
