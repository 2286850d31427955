//! Makes the table `counter`: how far each sequence, or each of its periods, has been reserved.

use sea_orm_migration::prelude::*;

use crate::column::{NAME_LENGTH, PERIOD_LENGTH, ascii, bigint, integer, table};

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let backend = manager.get_database_backend();
    manager
        .create_table(
            table(backend, "counter")
                .col(ascii(backend, "sequence", NAME_LENGTH))
                .col(ascii(backend, "period", PERIOD_LENGTH))
                .col(bigint("next_value"))
                .col(bigint("floor"))
                .col(ascii(backend, "state", 16))
                .col(ColumnDef::new("rate").double().not_null())
                .col(integer("stripe_count"))
                .col(bigint("window"))
                .col(ColumnDef::new("window_open").boolean().not_null())
                .col(bigint("window_leased_until"))
                .col(bigint("revision"))
                .col(bigint("version"))
                .primary_key(Index::create().col("sequence").col("period"))
                .to_owned(),
        )
        .await
}
