//! Makes the table `worker_lease`: who may issue ids with which worker id, and up to when.

use sea_orm_migration::prelude::*;

use crate::column::{NAME_LENGTH, ascii, bigint, integer, table};

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let backend = manager.get_database_backend();
    manager
        .create_table(
            table(backend, "worker_lease")
                .col(ascii(backend, "pool", NAME_LENGTH))
                .col(integer("worker"))
                .col(integer("bits"))
                .col(ascii(backend, "holder", NAME_LENGTH))
                .col(ascii(backend, "token_hash", 64))
                .col(bigint("expires_at"))
                .col(bigint("reserved_until"))
                .col(bigint("version"))
                .primary_key(Index::create().col("pool").col("worker"))
                .to_owned(),
        )
        .await
}
