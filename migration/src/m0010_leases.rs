//! Makes schema 4: worker ids are leased. A lease gets the time from which it may issue ids, the
//! length that was asked for, and whether it was given back. Pools of sequences fit next to the
//! pools of other programs.

use sea_orm_migration::{prelude::*, sea_orm::DbBackend};

use crate::{
    column::NAME_LENGTH,
    step::{add_column, create_index, reach_schema},
};

const TABLE: &str = "worker_lease";
/// Bounds the name of a pool: the name of a sequence, with a `/` before it.
const POOL_LENGTH: u32 = NAME_LENGTH + 1;

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let number = |name: &'static str| {
        let mut column = ColumnDef::new(name);
        column.big_integer().not_null().default(0).to_owned()
    };
    let mut ended = ColumnDef::new("ended");
    let ended = ended.boolean().not_null().default(false).to_owned();
    for name in ["reserved_from", "ttl_ms"] {
        add_column(manager, TABLE, name, number(name)).await?;
    }
    add_column(manager, TABLE, "ended", ended).await?;
    widen_pool(manager).await?;
    for (name, column) in [
        ("worker_lease_by_time", "reserved_until"),
        ("worker_lease_by_holder", "holder"),
    ] {
        create_index(manager, TABLE, name, &["pool", column]).await?;
    }
    reach_schema(manager, crate::WORKER_LEASES).await
}

/// Widens the column `pool`. The statement changes nothing if the column is as wide already.
async fn widen_pool(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let sql = match manager.get_database_backend() {
        DbBackend::Postgres => format!(
            "ALTER TABLE worker_lease ALTER COLUMN pool TYPE varchar({POOL_LENGTH}) COLLATE \"C\""
        ),
        DbBackend::MySql => format!(
            "ALTER TABLE worker_lease MODIFY COLUMN pool \
             varchar({POOL_LENGTH}) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
        ),
        // SQLite keeps no lengths.
        DbBackend::Sqlite | _ => return Ok(()),
    };
    let connection = manager.get_connection();
    connection.execute_unprepared(&sql).await.map(|_altered| ())
}
