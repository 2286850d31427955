//! Makes columns as every table of Odometer has them, on each database.

use sea_orm_migration::{prelude::*, sea_orm::DbBackend};

/// Bounds the name of a sequence, in ASCII characters.
pub(crate) const NAME_LENGTH: u32 = 128;
/// Bounds a period or a caller's key, in ASCII characters.
pub(crate) const PERIOD_LENGTH: u32 = 64;

/// Makes an ASCII column that is compared byte by byte: names that differ in case are two names.
pub(crate) fn ascii(backend: DbBackend, column: impl IntoIden, length: u32) -> ColumnDef {
    let mut definition = ascii_or_null(backend, column, length);
    definition.not_null();
    definition
}

/// Makes such a column that may be empty.
pub(crate) fn ascii_or_null(backend: DbBackend, column: impl IntoIden, length: u32) -> ColumnDef {
    let mut definition = ColumnDef::new(column);
    match backend {
        DbBackend::MySql => definition.custom(format!(
            "varchar({length}) CHARACTER SET ascii COLLATE ascii_bin"
        )),
        DbBackend::Postgres => definition.custom(format!("varchar({length}) COLLATE \"C\"")),
        DbBackend::Sqlite | _ => definition.string_len(length),
    };
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

/// Makes a table that is crash-safe, even if the server's default is not.
pub(crate) fn table(backend: DbBackend, name: impl IntoTableRef) -> TableCreateStatement {
    let mut statement = Table::create();
    statement.table(name).if_not_exists();
    if backend == DbBackend::MySql {
        statement.engine("InnoDB");
    }
    statement
}
