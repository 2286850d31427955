//! Makes schema 4: worker ids are leased. A lease gets the time from which it may issue ids, the
//! length that was asked for, and whether it was given back. Pools of sequences fit next to the
//! pools of other programs.

use sea_orm_migration::{prelude::*, sea_orm::DbBackend};

use crate::column::NAME_LENGTH;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

/// Bounds the name of a pool: the name of a sequence, with a `/` before it.
const POOL_LENGTH: u32 = NAME_LENGTH + 1;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let number = |name: &'static str| {
            let mut column = ColumnDef::new(name);
            column.big_integer().not_null().default(0).to_owned()
        };
        let mut ended = ColumnDef::new("ended");
        let ended = ended.boolean().not_null().default(false).to_owned();
        add(manager, "reserved_from", number("reserved_from")).await?;
        add(manager, "ttl_ms", number("ttl_ms")).await?;
        add(manager, "ended", ended).await?;
        widen_pool(manager).await?;
        index(manager, "worker_lease_by_time", "reserved_until").await?;
        index(manager, "worker_lease_by_holder", "holder").await?;
        let stamp = Query::update()
            .table("meta")
            .value("schema_version", crate::WORKER_LEASES)
            .and_where(Expr::col("schema_version").lt(crate::WORKER_LEASES))
            .to_owned();
        manager.execute(stamp).await
    }
}

/// Adds a column if it is not there yet. A server without transactional DDL may have stopped
/// half-way.
async fn add(manager: &SchemaManager<'_>, name: &str, column: ColumnDef) -> Result<(), DbErr> {
    if manager.has_column("worker_lease", name).await? {
        return Ok(());
    }
    let mut table = Table::alter();
    let table = table.table("worker_lease").add_column(column).to_owned();
    manager.alter_table(table).await
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

async fn index(
    manager: &SchemaManager<'_>,
    name: &'static str,
    column: &'static str,
) -> Result<(), DbErr> {
    if manager.has_index("worker_lease", name).await? {
        return Ok(());
    }
    let index = Index::create()
        .name(name)
        .table("worker_lease")
        .col("pool")
        .col(column)
        .to_owned();
    manager.create_index(index).await
}
