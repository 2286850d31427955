//! Makes the table `sequence`: names and what was defined for them.

use sea_orm_migration::prelude::*;

use crate::{
    column::{NAME_LENGTH, PERIOD_LENGTH, ascii, bigint, table},
    step::create_index,
};

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let backend = manager.get_database_backend();
    manager
        .create_table(
            table(backend, "sequence")
                .col(ascii(backend, "name", NAME_LENGTH).primary_key())
                .col(ColumnDef::new("definition").text().not_null())
                .col(ascii(backend, "state", 16))
                .col(ascii(backend, "periods_removed_through", PERIOD_LENGTH))
                .col(bigint("version"))
                .col(bigint("created_at"))
                .col(bigint("changed_at"))
                .to_owned(),
        )
        .await?;
    create_index(manager, "sequence", "sequence_version", &["version"]).await
}
