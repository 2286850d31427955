package org.hibernate.generator;

import java.io.Serializable;

/** Stands for the interface of Hibernate. */
public interface Generator extends Serializable {}
