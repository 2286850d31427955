package examples;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.hibernate.annotations.IdGeneratorType;

/** Gives an entity of Hibernate its id: `@Id @OdometerId("orders") private Long id;`. */
@IdGeneratorType(OdometerIdGenerator.class)
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.FIELD, ElementType.METHOD})
public @interface OdometerId {
    /** Returns the name of the sequence. */
    String value();
}
