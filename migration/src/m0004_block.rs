//! Makes the table `block`: the journal, with one row for each reserved block.

use sea_orm_migration::prelude::*;

use crate::{
    column::{NAME_LENGTH, PERIOD_LENGTH, ascii, bigint, table},
    step::create_index,
};

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let backend = manager.get_database_backend();
    manager
        .create_table(
            table(backend, "block")
                .col(ColumnDef::new("id").uuid().not_null().primary_key())
                .col(ascii(backend, "sequence", NAME_LENGTH))
                .col(ascii(backend, "period", PERIOD_LENGTH))
                .col(bigint("first"))
                .col(bigint("last"))
                .col(bigint("step"))
                .col(ascii(backend, "holder", 64))
                .col(bigint("reserved_at"))
                .col(ascii(backend, "fate", 16))
                .col(bigint("next_unissued"))
                .to_owned(),
        )
        .await?;
    let columns = ["sequence", "period", "fate", "next_unissued"];
    create_index(manager, "block", "block_by_sequence", &columns).await
}
