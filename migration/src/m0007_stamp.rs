//! Inserts the one row of `meta`: a cluster id of its own, one stripe of one, schema 1.

use sea_orm_migration::prelude::*;
use uuid::Uuid;

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let row = Query::insert()
        .into_table("meta")
        .columns([
            "id",
            "cluster_id",
            "stripe_k",
            "stripe_n",
            "schema_version",
            "compatible_from",
            "definitions_version",
            "recovered_skip",
        ])
        .values_panic([
            1.into(),
            Uuid::new_v4().to_string().into(),
            0.into(),
            1.into(),
            1.into(),
            1.into(),
            0.into(),
            0.into(),
        ])
        // A server without transactional DDL may have stopped between the row and the record of
        // this step.
        .on_conflict(OnConflict::column("id").do_nothing_on(["id"]).to_owned())
        .to_owned();
    manager.execute(row).await
}
