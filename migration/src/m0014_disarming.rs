//! Makes schema 8: a database keeps what operators say of new counters and of older programs, and
//! knows which programs can fence databases that count together.

use sea_orm_migration::prelude::*;

use crate::step::{add_column, reach_schema};

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let births_after = ColumnDef::new("births_after").big_integer().to_owned();
    add_column(manager, "meta", "births_after", births_after).await?;
    // Programs of the schema before read rows without these columns.
    let mut disarmed = ColumnDef::new("disarmed");
    let disarmed = disarmed.boolean().not_null().default(false).to_owned();
    add_column(manager, "meta", "disarmed", disarmed).await?;
    // Programs of the schema before write rows without this column.
    let mut knows_sharing = ColumnDef::new("knows_sharing");
    let knows_sharing = knows_sharing.boolean().not_null().default(false).to_owned();
    add_column(manager, "replica", "knows_sharing", knows_sharing).await?;
    reach_schema(manager, crate::DISARMING).await
}
