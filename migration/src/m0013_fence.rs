//! Makes schema 7: a database knows its recoveries, and whether every program that uses it knows
//! them, too.

use sea_orm_migration::prelude::*;

use crate::{
    column::{NAME_LENGTH, ascii, ascii_or_null, bigint, integer, table},
    m0011_lineage::STARTED_LENGTH,
    step::{add_column, reach_schema},
};

/// Sets for how long ids in pools of other programs rest after a recovery, in milliseconds: an
/// hour, and ten minutes for clocks.
const NAMED_LEASES_REST_MS: i64 = 70 * 60 * 1000;

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let backend = manager.get_database_backend();
    manager
        .create_table(
            table(backend, "fence")
                .col(ColumnDef::new("number").integer().not_null().primary_key())
                .col(bigint("branch"))
                .col(bigint("previous_branch"))
                .col(bigint("since_us"))
                .col(bigint("until_us"))
                .col(integer("n_levels"))
                .col(bigint("n_steps"))
                .col(ColumnDef::new("is_said").boolean().not_null())
                .col(bigint("highest_rise"))
                .col(ascii(backend, "made_by", 64))
                .col(bigint("fenced_at"))
                .col(ascii_or_null(backend, "sequence", NAME_LENGTH))
                .to_owned(),
        )
        .await?;
    // Programs of the schema before write rows without these columns.
    let mut must_recover = ColumnDef::new("must_recover");
    let must_recover = must_recover.boolean().not_null().default(false).to_owned();
    add_column(manager, "counter", "must_recover", must_recover).await?;
    let mut knows_fences = ColumnDef::new("knows_fences");
    let knows_fences = knows_fences.boolean().not_null().default(false).to_owned();
    add_column(manager, "replica", "knows_fences", knows_fences).await?;
    let mut ended = ColumnDef::new("ended");
    let ended = ended.boolean().not_null().default(false).to_owned();
    add_column(manager, "replica", "ended", ended).await?;
    let vouches = ascii_or_null(backend, "vouches", STARTED_LENGTH);
    add_column(manager, "replica", "vouches", vouches).await?;
    let armed_at = ColumnDef::new("armed_at").big_integer().to_owned();
    add_column(manager, "meta", "armed_at", armed_at).await?;
    let last_recovery_at = ColumnDef::new("last_recovery_at").big_integer().to_owned();
    add_column(manager, "meta", "last_recovery_at", last_recovery_at).await?;
    let named_leases_from = ColumnDef::new("named_leases_from").big_integer().to_owned();
    add_column(manager, "meta", "named_leases_from", named_leases_from).await?;
    let mut leased_at = ColumnDef::new("leased_at");
    let leased_at = leased_at.big_integer().not_null().default(0).to_owned();
    add_column(manager, "worker_lease", "leased_at", leased_at).await?;
    let copied = Query::update()
        .table("meta")
        .value("last_recovery_at", Expr::col("recovered_at"))
        .value(
            "named_leases_from",
            Expr::col("recovered_at").add(NAMED_LEASES_REST_MS),
        )
        .and_where(Expr::col("last_recovery_at").is_null())
        .to_owned();
    manager.execute(copied).await?;
    reach_schema(manager, crate::FENCE).await
}
