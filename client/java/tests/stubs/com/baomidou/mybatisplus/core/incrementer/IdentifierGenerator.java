package com.baomidou.mybatisplus.core.incrementer;

/** Stands for the interface of MyBatis-Plus. Its other methods have a default. */
public interface IdentifierGenerator {
    Number nextId(Object entity);
}
