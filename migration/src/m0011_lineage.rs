//! Makes schema 5: a database shows where it was last good, so that a copy of it is told apart.
//!
//! The table `lineage` has one row. It is stamped by the first process that uses the schema, not
//! here: a migration may run within a savepoint, whose writes look like those of another
//! transaction.

use sea_orm_migration::{prelude::*, sea_orm::DbBackend};

use crate::{
    column::{ascii, bigint, table},
    step::reach_schema,
};

/// Bounds what a server says of itself, in ASCII characters.
const SERVER_LENGTH: u32 = 128;
/// Bounds the start of a server, in ASCII characters.
pub(crate) const STARTED_LENGTH: u32 = 64;

/// Makes MariaDB note when each row was written. A dump does not copy this time. MySQL reads no
/// comment of MariaDB.
const KEEPS_TIMES: &str = "/*M! WITH SYSTEM VERSIONING */";

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let backend = manager.get_database_backend();
    let mut lineage = table(backend, "lineage");
    lineage
        .col(
            ColumnDef::new("id")
                .small_integer()
                .not_null()
                .primary_key(),
        )
        .col(bigint("branch"))
        .col(ascii(backend, "server", SERVER_LENGTH))
        .col(ascii(backend, "started", STARTED_LENGTH))
        .col(bigint("written_by"))
        .col(bigint("stamped_at"));
    if backend == DbBackend::MySql {
        lineage.extra(KEEPS_TIMES);
    }
    manager.create_table(lineage).await?;
    let row = Query::insert()
        .into_table("lineage")
        .columns([
            "id",
            "branch",
            "server",
            "started",
            "written_by",
            "stamped_at",
        ])
        .values_panic([1.into(), 0.into(), "".into(), "".into(), 0.into(), 0.into()])
        // A server without transactional DDL may have stopped after this row.
        .on_conflict(OnConflict::column("id").do_nothing_on(["id"]).to_owned())
        .to_owned();
    manager.execute(row).await?;
    // Programs of the schema before work with this one. Older ones do not know windows in Redis, nor
    // leases of worker ids.
    let keep_out = Query::update()
        .table("meta")
        .value("compatible_from", crate::OLDEST_BESIDE)
        .and_where(Expr::col("compatible_from").lt(crate::OLDEST_BESIDE))
        .to_owned();
    manager.execute(keep_out).await?;
    reach_schema(manager, crate::LINEAGE).await
}
