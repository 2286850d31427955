//! Makes the table `meta`: which installation this is, and which schema it has.

use sea_orm_migration::prelude::*;

use crate::column::{ascii, bigint, integer, table};

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let backend = manager.get_database_backend();
    manager
        .create_table(
            table(backend, "meta")
                .col(
                    ColumnDef::new("id")
                        .small_integer()
                        .not_null()
                        .primary_key(),
                )
                .col(ascii(backend, "cluster_id", 36))
                .col(integer("stripe_k"))
                .col(integer("stripe_n"))
                .col(integer("schema_version"))
                .col(integer("compatible_from"))
                .col(bigint("definitions_version"))
                .col(ColumnDef::new("recovered_at").big_integer().null())
                .col(bigint("recovered_skip"))
                .col(ColumnDef::new("leases_from").big_integer().null())
                .to_owned(),
        )
        .await
}
