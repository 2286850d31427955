//! Reads, checks and writes the installation id of a database. The id says to which installation
//! the database belongs, and which of how many databases it is that share their sequences.
//!
//! `odometer migrate` writes the id once; messages call it the stamp. If the id does not fit the
//! database's place in the configuration, the database would count numbers that another one counts.
//! So nothing is reserved from such a database.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::identity::DatabaseIdentity;
use entity::{meta, sequence, worker_lease};
use odometer_core::definition::Stripe;
use odometer_database::{
    fitness::DatabaseFitness, session::DatabaseConnection, start_error::StartError,
};
use parking_lot::Mutex;
use sea_orm::{
    ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::{Expr, ExprTrait, Query, SelectStatement},
};

use crate::meta_row;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::connection::stamp";

/// Begins a sentence that fits every database. `DatabaseLabel::name_in` puts in which database it
/// is.
const THIS: &str = "ODOMETER_DATABASE_URL: this database";

/// The installations of the stores' databases, as far as the databases have answered.
#[derive(Debug, Default)]
pub struct Installations {
    /// For the name of each store: its installation, and the database that reported the
    /// installation.
    known: Mutex<HashMap<Arc<str>, (String, String)>>,
    /// The stores whose database is not the one that a claim names. Each store is logged once.
    replaced: Mutex<HashSet<String>>,
}

impl Installations {
    /// Returns the installation of a store, once its database has answered.
    pub(crate) fn of(&self, store: &str) -> Option<String> {
        let known = self.known.lock();
        known.get(store).map(|(cluster_id, _)| cluster_id.clone())
    }

    /// Returns whether a store's database is another one than when a name was claimed for the
    /// store.
    pub(crate) fn is_another(&self, store: &str, claimed_of: &str) -> bool {
        let Some(now) = self.of(store) else {
            return false;
        };
        if claimed_of.is_empty() || now == claimed_of {
            return false;
        }
        if self.replaced.lock().insert(store.to_owned()) {
            tracing::error!(
                target: TARGET,
                store,
                installation = now,
                claimed_of,
                "the store's database is another one than the one that names live in: they are \
                 refused until the configuration names that database again"
            );
        }
        true
    }

    /// Notes the installation that a store's database reports. If another store has the same
    /// installation, notes nothing and returns the database that reported it.
    fn note(&self, identity: &DatabaseIdentity, cluster_id: &str) -> Option<String> {
        let mut known = self.known.lock();
        let same = known
            .iter()
            .find(|(store, (known, _))| **store != identity.label.store && known == cluster_id);
        if let Some((_, (_, said_by))) = same {
            return Some(said_by.clone());
        }
        let said = (cluster_id.to_owned(), identity.to_string());
        known.insert(Arc::clone(&identity.label.store), said);
        None
    }
}

/// The installation id that a database reports, and what decides whether it may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstallationId {
    pub(crate) cluster_id: String,
    pub(crate) k: i32,
    pub(crate) n: i32,
    /// Whether the database has a row of a sequence or of a worker id.
    pub(crate) has_sequences: bool,
    /// Whether `odometer recover` ever ran on it. Then new counters begin above what was skipped.
    pub(crate) was_recovered: bool,
}

/// Returns the stripe that a database counts, as its own row says.
pub(crate) fn of(meta: &meta::Model) -> Stripe {
    let (k, n) = (u16::try_from(meta.stripe_k), u16::try_from(meta.stripe_n));
    let stripe = k.ok().zip(n.ok()).and_then(|(k, n)| Stripe::new(k, n));
    stripe.unwrap_or(Stripe::WHOLE)
}

/// Returns why a database with this installation id must not be used at this place. The schema does
/// not fit if `odometer migrate` has not written the id yet. Otherwise the database is wrong, and
/// only a change of the configuration helps. The reason is a sentence about `this database`:
/// [`DatabaseLabel::name_in`] puts in which database it is.
///
/// [`DatabaseLabel::name_in`]: odometer_database::label::DatabaseLabel::name_in
pub(crate) fn misplaced(
    identity: &DatabaseIdentity,
    stamp: &InstallationId,
) -> Option<DatabaseFitness> {
    let wrong = |what: String| Some(DatabaseFitness::Wrong(format!("{THIS} {what}")));
    let (stripe, n) = (identity.stripe, i32::from(identity.stripe.n()));
    if stamp.n == 1 && n > 1 {
        return if stamp.has_sequences {
            wrong(format!(
                "holds sequences that it shares with no other database, so it cannot become one \
                 of {n}: name a database without sequences"
            ))
        } else {
            Some(DatabaseFitness::Schema(format!(
                "{THIS} is not stamped as one of {n} yet: run `odometer migrate`"
            )))
        };
    }
    // People count from one.
    let (stamped, stands) = (stamp.k.saturating_add(1), u32::from(stripe.k()) + 1);
    if stamp.n != n {
        return wrong(format!(
            "is stamped as number {stamped} of {} that share their sequences, and the \
             configuration names {n}: how many they are never changes; name exactly those {}, in \
             their order",
            stamp.n, stamp.n
        ));
    }
    if stamp.k != i32::from(stripe.k()) {
        return wrong(format!(
            "is stamped as number {stamped} of {n} that share their sequences, and stands at \
             number {stands}: name them in the order in which they were stamped"
        ));
    }
    foreign(identity, stamp)
}

fn foreign(identity: &DatabaseIdentity, stamp: &InstallationId) -> Option<DatabaseFitness> {
    let known = identity
        .installation
        .known
        .lock()
        .get(&identity.label.store)
        .cloned();
    match known {
        Some((cluster_id, said_by))
            if identity.stripe != Stripe::WHOLE && cluster_id != stamp.cluster_id =>
        {
            Some(DatabaseFitness::Wrong(format!(
                "{THIS} is of another installation ({}) than {said_by} ({cluster_id}): name \
                 databases that were stamped together",
                stamp.cluster_id
            )))
        }
        Some((cluster_id, _)) if cluster_id == stamp.cluster_id => None,
        Some(_) | None => {
            let same = identity.installation.note(identity, &stamp.cluster_id)?;
            Some(DatabaseFitness::Wrong(format!(
                "{THIS} is that of another store ({same}), or a copy of it: name another one"
            )))
        }
    }
}

/// Reads the installation id from a database whose schema fits.
pub(crate) async fn read(database: &DatabaseConnection) -> Result<InstallationId, DbErr> {
    let meta = meta_row::read(meta_row::plain(), database).await?;
    Ok(InstallationId {
        cluster_id: meta.cluster_id,
        k: meta.stripe_k,
        n: meta.stripe_n,
        has_sequences: has_any::<sequence::Entity>(database, sequence::Column::Name).await?
            || has_any::<worker_lease::Entity>(database, worker_lease::Column::Pool).await?,
        was_recovered: meta.recovered_at.is_some(),
    })
}

async fn has_any<E: EntityTrait>(
    database: &DatabaseConnection,
    column: E::Column,
) -> Result<bool, DbErr> {
    let one = E::find().select_only().column(column).limit(1);
    let found: Option<String> = one.into_tuple().one(database).await?;
    Ok(found.is_some())
}

/// Writes the installation id of a database that has none yet. Returns false if the database has
/// one, or has sequences or worker ids. Nothing is created meanwhile.
pub(crate) async fn write(
    database: &DatabaseConnection,
    identity: &DatabaseIdentity,
    cluster_id: &str,
) -> Result<bool, DbErr> {
    let transaction = database.begin_read_committed().await?;
    meta_row::lock_exclusively(&transaction).await?;
    let any = |mut rows: SelectStatement| Expr::exists(rows.expr(Expr::val(1)).to_owned());
    let has_sequences = any(Query::select().from(sequence::Entity).to_owned());
    let has_leases = any(Query::select().from(worker_lease::Entity).to_owned());
    let stamped = meta::Entity::update_many()
        .col_expr(meta::Column::ClusterId, Expr::val(cluster_id))
        .col_expr(
            meta::Column::StripeK,
            Expr::val(i32::from(identity.stripe.k())),
        )
        .col_expr(
            meta::Column::StripeN,
            Expr::val(i32::from(identity.stripe.n())),
        )
        .filter(meta::Column::Id.eq(1))
        .filter(meta::Column::StripeN.eq(1))
        .filter(has_sequences.not())
        .filter(has_leases.not())
        .exec(&transaction)
        .await?;
    transaction.commit().await?;
    Ok(stamped.rows_affected == 1)
}

/// Returns the installation to write to all databases of a store, if nothing speaks against it.
///
/// If an earlier migration stopped half-way, the installation that it wrote is used.
///
/// # Errors
/// Why not. The message names the database and says what to do.
pub(crate) fn agreed(places: &[(DatabaseIdentity, InstallationId)]) -> Result<String, StartError> {
    let mut chosen: Option<String> = None;
    for (identity, stamp) in places {
        match misplaced(identity, stamp) {
            None => chosen = Some(stamp.cluster_id.clone()),
            Some(DatabaseFitness::Schema(_)) => {}
            Some(unfit) => return Err(StartError::from(unfit).of(&identity.label)),
        }
    }
    check_replaced(places)?;
    for (at, (identity, stamp)) in places.iter().enumerate() {
        let earlier = places.iter().take(at);
        let is_same = |other: &&(DatabaseIdentity, InstallationId)| {
            other.1.cluster_id == stamp.cluster_id && other.1.n == 1 && stamp.n == 1
        };
        if let Some((other, _)) = earlier.clone().find(is_same) {
            let same = format!("{THIS} is the same as {other}, or a copy of it: name another one");
            return Err(StartError::Configuration(same).of(&identity.label));
        }
    }
    let first = places.first().map(|(_, stamp)| stamp.cluster_id.clone());
    Ok(chosen.or(first).unwrap_or_default())
}

/// Refuses an empty database next to databases that hold sequences. An empty database stands in the
/// place of a lost one, and would count the numbers of the lost one again.
fn check_replaced(places: &[(DatabaseIdentity, InstallationId)]) -> Result<(), StartError> {
    let holds =
        |(_, stamp): &&(DatabaseIdentity, InstallationId)| stamp.n > 1 && stamp.has_sequences;
    let is_new =
        |(_, stamp): &&(DatabaseIdentity, InstallationId)| stamp.n == 1 && !stamp.was_recovered;
    let (Some((other, _)), Some((identity, _))) =
        (places.iter().find(holds), places.iter().find(is_new))
    else {
        return Ok(());
    };
    let reason = format!(
        "{THIS} is new, and {other} holds sequences already. In the place of a lost database it \
         would give the numbers of the lost one again. Restore the lost database from its backup, \
         and run `odometer recover --store {store} --skip N`. Or, to go on with this database, \
         run that command and then `odometer migrate`",
        store = identity.label.store
    );
    Err(StartError::Configuration(reason).of(&identity.label))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;
    use crate::settings::tests::places;

    fn stamp(cluster_id: &str, k: i32, n: i32) -> InstallationId {
        InstallationId {
            cluster_id: cluster_id.to_owned(),
            k,
            n,
            has_sequences: true,
            was_recovered: false,
        }
    }

    fn fresh(cluster_id: &str) -> InstallationId {
        InstallationId {
            has_sequences: false,
            ..stamp(cluster_id, 0, 1)
        }
    }

    fn refused(identity: &DatabaseIdentity, stamp: &InstallationId) -> String {
        match misplaced(identity, stamp) {
            Some(DatabaseFitness::Wrong(reason)) => identity.label.name_in(&reason),
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn a_database_in_its_place_is_taken() {
        let places_of_three = places(3);
        for (k, identity) in (0..).zip(&places_of_three) {
            assert_eq!(misplaced(identity, &stamp("one", k, 3)), None);
        }
        let alone = &places(1)[0];
        assert_eq!(misplaced(alone, &stamp("one", 0, 1)), None);
        assert_eq!(misplaced(alone, &stamp("two", 0, 1)), None);
    }

    #[test]
    fn a_database_of_another_place_is_refused_by_name_and_with_the_mend() {
        let (two, three, four) = (places(2), places(3), places(4));
        assert_eq!(misplaced(&three[0], &stamp("one", 0, 3)), None);
        for (what, reason, mend) in [
            (
                "order",
                refused(&three[1], &stamp("one", 2, 3)),
                "in the order",
            ),
            (
                "foreign",
                refused(&three[1], &stamp("two", 1, 3)),
                "stamped together",
            ),
            (
                "missing",
                refused(&two[1], &stamp("one", 1, 3)),
                "exactly those 3",
            ),
            (
                "extra",
                refused(&four[1], &stamp("one", 1, 3)),
                "exactly those 3",
            ),
            (
                "used",
                refused(&three[1], &stamp("one", 0, 1)),
                "without sequences",
            ),
        ] {
            let named = reason
                .starts_with("stores.tickets.databases[1] (mysql://h1:3306/d, in odometer.toml): ");
            assert!(named, "{what}: {reason}");
            assert!(reason.contains(mend), "{what}: {reason}");
            assert!(!reason.contains("tiger"), "{what}: {reason}");
        }
        let alone = refused(&places(1)[0], &stamp("one", 1, 3));
        assert!(alone.contains("exactly those 3"), "{alone}");
    }

    #[test]
    fn a_stamping_that_stopped_is_gone_on_with() {
        let with =
            |stamps: [InstallationId; 3]| places(3).into_iter().zip(stamps).collect::<Vec<_>>();
        let unused = InstallationId {
            has_sequences: false,
            ..stamp("one", 0, 3)
        };
        let stopped = with([unused, fresh("b"), fresh("c")]);
        assert_eq!(agreed(&stopped).unwrap(), "one");
        let new = with([fresh("a"), fresh("b"), fresh("c")]);
        assert_eq!(agreed(&new).unwrap(), "a");
        let twice = with([fresh("a"), fresh("b"), fresh("a")]);
        let reason = agreed(&twice).unwrap_err().to_string();
        assert!(reason.contains("[2]") && reason.contains("[0]"), "{reason}");
    }

    #[test]
    fn a_new_database_in_the_place_of_a_lost_one_is_refused_until_it_was_recovered() {
        let with = |third| {
            let stamps = [stamp("one", 0, 3), stamp("one", 1, 3), third];
            places(3).into_iter().zip(stamps).collect::<Vec<_>>()
        };
        let reason = agreed(&with(fresh("c"))).unwrap_err().to_string();
        assert!(reason.contains("databases[2]"), "{reason}");
        assert!(reason.contains("recover --store tickets"), "{reason}");
        let recovered = InstallationId {
            was_recovered: true,
            ..fresh("c")
        };
        assert_eq!(agreed(&with(recovered)).unwrap(), "one");
    }
}
