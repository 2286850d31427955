//! Builds inserts that depend on other rows.

use sea_orm::{
    DbErr, EntityTrait, Iterable, ModelTrait,
    sea_query::{Expr, InsertStatement, Query, SelectStatement},
};

/// Builds the statement that inserts a row if `condition` finds a row. The condition is a query
/// that selects nothing yet.
pub(crate) fn insert_if<M: ModelTrait>(
    row: &M,
    mut condition: SelectStatement,
) -> Result<InsertStatement, DbErr> {
    // The columns are in the order of the fields of the entity.
    let columns = || <M::Entity as EntityTrait>::Column::iter();
    condition.exprs(columns().map(|column| Expr::val(row.get(column))));
    let mut insert = Query::insert();
    insert
        .into_table(M::Entity::default())
        .columns(columns())
        .select_from(condition)
        .map_err(|error| DbErr::Custom(error.to_string()))?;
    Ok(insert)
}
