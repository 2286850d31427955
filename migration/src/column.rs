//! Columns as every table of Odometer has them, per database.

use sea_orm_migration::{prelude::*, sea_orm::DbBackend};

/// Longest name of a sequence, in ASCII characters.
pub(crate) const NAME_LENGTH: u32 = 128;
/// Longest period or caller's key, in ASCII characters.
pub(crate) const PERIOD_LENGTH: u32 = 64;

/// An ASCII column that is compared byte by byte: names that differ in case are two names.
pub(crate) fn ascii(backend: DbBackend, column: impl IntoIden, length: u32) -> ColumnDef {
    let mut definition = ColumnDef::new(column);
    match backend {
        DbBackend::MySql => definition.custom(format!(
            "varchar({length}) CHARACTER SET ascii COLLATE ascii_bin"
        )),
        DbBackend::Postgres => definition.custom(format!("varchar({length}) COLLATE \"C\"")),
        DbBackend::Sqlite | _ => definition.string_len(length),
    };
    definition.not_null();
    definition
}

pub(crate) fn bigint(column: impl IntoIden) -> ColumnDef {
    let mut definition = ColumnDef::new(column);
    definition.big_integer().not_null();
    definition
}

pub(crate) fn integer(column: impl IntoIden) -> ColumnDef {
    let mut definition = ColumnDef::new(column);
    definition.integer().not_null();
    definition
}

/// A table that is crash-safe also where the server's default is not.
pub(crate) fn table(backend: DbBackend, name: impl IntoTableRef) -> TableCreateStatement {
    let mut statement = Table::create();
    statement.table(name).if_not_exists();
    if backend == DbBackend::MySql {
        statement.engine("InnoDB");
    }
    statement
}
