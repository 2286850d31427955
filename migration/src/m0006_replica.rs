//! Makes the table `replica`: one row for each start of a process, raised with each heartbeat.

use sea_orm_migration::prelude::*;

use crate::column::{ascii, bigint, table};

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let backend = manager.get_database_backend();
    manager
        .create_table(
            table(backend, "replica")
                .col(ascii(backend, "holder", 64).primary_key())
                .col(bigint("beat"))
                .col(bigint("beat_at"))
                .to_owned(),
        )
        .await
}
