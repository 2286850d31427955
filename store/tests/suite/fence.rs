//! Fences: a copy goes on above what its limits allowed, and above what a replica knows.

use std::{sync::Arc, time::Duration};

use odometer_core::name::SequenceName;
use odometer_store::{FenceRequest, Loss, StoreError};
use odometer_tests::{Backend, wait};

use crate::{
    for_each_backend,
    restart::change_stamp,
    stage::{LIMIT, Stage, of_sequence, recover, recover_by},
};

/// Steps that an operator says were lost of one sequence.
const SKIP: u64 = 1_000;
pub(crate) const ARM: &str = "UPDATE meta SET armed_at = 1";
/// How long a lease of a window lasts.
const LEASE_MS: i64 = 800;
/// Less time than any copy needs.
const SHORTLY: Duration = Duration::from_millis(1);

impl Stage {
    pub(crate) async fn number(&self, query: &str) -> i64 {
        let number = self.database.number(query).await;
        number.expect("there is such a row")
    }

    /// What this replica asks for to fence a copy that was good within this time.
    async fn request(&self, within: Duration) -> FenceRequest {
        let rows = self.database.query("SELECT cluster_id FROM meta").await;
        let cluster_id: String = rows[0].try_get("", "cluster_id").expect("it has an id");
        let request = self.store().fence_request(&cluster_id, within);
        request.expect("there is a store")
    }

    /// Creates a sequence, and returns where it begins.
    pub(crate) async fn is_born(&self, name: &str) -> i64 {
        let name = SequenceName::parse(name).expect("it is a name");
        let created = self.store().create(&name, &Arc::default(), None).await;
        created.expect("it is created").known.seen.next_value
    }
}

for_each_backend!(a_copy_is_fenced_above_what_its_limits_allowed);

/// Checks what `odometer recover` computes for a copy, and that it computes nothing for a database
/// that is none.
async fn a_copy_is_fenced_above_what_its_limits_allowed(backend: Backend) {
    let mut stage = Stage::impatient(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.stop().await;
    let compute = || Loss::Computed(FenceRequest::default());
    stage.database.execute(ARM).await;
    change_stamp(&stage, "server").await;
    let fenced = recover_by(&stage.settings, compute()).await;
    let fenced = fenced.expect("it is fenced");
    assert!(fenced.fence.is_some(), "{fenced:?}");
    // The burst, and the rate for the time since the last heartbeat.
    assert!(
        (10_000_000..20_000_000).contains(&fenced.highest_rise),
        "{fenced:?}"
    );
    assert_eq!(stage.next_value().await, 11 + fenced.highest_rise);
    let fences = "SELECT COUNT(*) FROM fence WHERE n_levels = 0 AND n_steps = 0";
    assert_eq!(stage.database.number(fences).await, Some(1));
    let again = recover_by(&stage.settings, compute()).await;
    again.expect_err("the database is no copy any more");
    stage.start().await;
    let second = wait::until("the limit allows numbers", LIMIT, async || {
        stage.reserve(5, None).await.ok()
    })
    .await;
    assert_eq!(second.block.first(), 11 + fenced.highest_rise);
    let told = stage.last_recovery().expect("it is told");
    let highest_rise = i64::try_from(told.highest_rise).expect("a rise");
    assert_eq!(highest_rise, fenced.highest_rise);
    let since_ms = told.lost_since_ms.expect("nobody said what was lost");
    assert!((1..=60_000).contains(&(told.at_ms - since_ms)), "{told:?}");
}

for_each_backend!(a_fence_leaves_no_window_of_redis_open);

/// Checks that the next window has a number above all that lost commits can have opened, and that no
/// number is given before their leases are over.
async fn a_fence_leaves_no_window_of_redis_open(backend: Backend) {
    let mut stage = Stage::impatient(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.stop().await;
    let window = match backend {
        Backend::MariaDb => "`window`",
        Backend::Postgres | Backend::Sqlite => "\"window\"",
    };
    stage.database.execute(ARM).await;
    change_stamp(&stage, "server").await;
    for counts_in_redis in [
        "UPDATE meta SET redis = 'r1:6379/0 fallback=database'".to_owned(),
        format!("UPDATE counter SET {window} = 7, window_open = TRUE"),
    ] {
        stage.database.execute(&counts_in_redis).await;
    }
    let fenced = recover_by(&stage.settings, Loss::Computed(FenceRequest::default())).await;
    let fenced = fenced.expect("it is fenced");
    let leased_until = fenced.recovered_at + LEASE_MS;
    let closed = format!(
        "SELECT COUNT(*) FROM counter WHERE window_open = FALSE AND {window} > 1000000 \
         AND window_leased_until >= {leased_until}"
    );
    assert_eq!(stage.number(&closed).await, 1);
}

for_each_backend!(a_word_about_one_sequence_is_kept_and_begins_a_branch);

async fn a_word_about_one_sequence_is_kept_and_begins_a_branch(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.is_born("others").await;
    stage.stop().await;
    let before = stage.number("SELECT branch FROM lineage").await;
    let recovered = recover_by(&stage.settings, of_sequence("orders", SKIP)).await;
    assert_eq!(recovered.expect("it is recovered").highest_rise, 1_000);
    let kept = "SELECT COUNT(*) FROM fence, lineage WHERE fence.branch = lineage.branch \
                AND fence.number = 1 AND sequence = 'orders' AND n_steps = 1000";
    assert_eq!(stage.number(kept).await, 1);
    let follows = format!("SELECT COUNT(*) FROM fence WHERE previous_branch = {before}");
    assert_eq!(stage.number(&follows).await, 1);
    stage.start().await;
    let second = stage.reserve(5, None).await.expect("a block");
    assert_eq!(second.block.first(), 1_011);
    // Nothing was said of other sequences, so nobody is told of a recovery.
    assert_eq!(stage.last_recovery(), None);
    // If it was lost and is created again, it begins above. Others begin at their start.
    for table in ["counter", "sequence"] {
        stage
            .database
            .execute(&format!("DELETE FROM {table}"))
            .await;
    }
    stage.stop().await;
    stage.start().await;
    assert_eq!(stage.is_born("orders").await, 1_001);
    assert_eq!(stage.is_born("others").await, 1);
    stage.stop().await;
}

for_each_backend!(a_word_about_one_sequence_makes_no_copy_whole);

async fn a_word_about_one_sequence_makes_no_copy_whole(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.stop().await;
    change_stamp(&stage, "server").await;
    let recovered = recover_by(&stage.settings, of_sequence("orders", SKIP)).await;
    let error = recovered.expect_err("it is a copy");
    assert!(
        error.to_string().contains("NAME: this database is a copy"),
        "{error}"
    );
    assert_eq!(stage.next_value().await, 11);
}

for_each_backend!(a_lost_word_about_one_sequence_is_kept_by_a_fence);

/// Checks a copy that lacks what an operator said of one sequence. A replica knows it.
async fn a_lost_word_about_one_sequence_is_kept_by_a_fence(backend: Backend) {
    let mut stage = Stage::impatient(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.stop().await;
    stage.database.execute(ARM).await;
    let before = stage.number("SELECT branch FROM lineage").await;
    let recovered = recover_by(&stage.settings, of_sequence("orders", SKIP)).await;
    recovered.expect("it is recovered");
    let branch = stage.number("SELECT branch FROM lineage").await;
    stage.start().await;
    stage.reserve(5, None).await.expect("a block");
    // What a replica knows and the copy lacks is skipped at any age.
    let request = stage.request(SHORTLY).await;
    stage.stop().await;
    stage.database.execute("DELETE FROM fence").await;
    let lose = "UPDATE counter SET next_value = 11, must_recover = TRUE";
    stage.database.execute(lose).await;
    let lose = format!("UPDATE lineage SET branch = {before}");
    stage.database.execute(&lose).await;
    change_stamp(&stage, "server").await;
    stage
        .database
        .execute("UPDATE meta SET armed_at = NULL")
        .await;
    let refused = recover_by(&stage.settings, Loss::Computed(request.clone())).await;
    let refused = refused.expect_err("it is not armed").to_string();
    assert!(
        refused.contains("give --skip N, more than 1000 and"),
        "{refused}"
    );
    stage.database.execute(ARM).await;
    let fenced = recover_by(&stage.settings, Loss::Computed(request)).await;
    let fenced = fenced.expect("it is fenced");
    assert_eq!(stage.next_value().await, 1_011 + fenced.highest_rise);
    let again = format!("SELECT COUNT(*) FROM fence WHERE branch = {branch} AND number = 1");
    assert_eq!(stage.number(&again).await, 1);
    let last =
        format!("SELECT COUNT(*) FROM fence WHERE previous_branch = {branch} AND number = 2");
    assert_eq!(stage.number(&last).await, 1);
    // What was lost after that word is not known, so a counter that waits still does.
    let waits = "SELECT COUNT(*) FROM counter WHERE must_recover = TRUE";
    assert_eq!(stage.number(waits).await, 1);
    for table in ["counter", "sequence"] {
        stage
            .database
            .execute(&format!("DELETE FROM {table}"))
            .await;
    }
    stage.start().await;
    let (orders, others) = (stage.is_born("orders").await, stage.is_born("others").await);
    assert_eq!(orders - others, 1_000);
    stage.stop().await;
}

for_each_backend!(an_old_copy_that_lacks_nothing_is_left_to_an_operator);

async fn an_old_copy_that_lacks_nothing_is_left_to_an_operator(backend: Backend) {
    let mut stage = Stage::impatient(backend).await;
    stage.reserve(10, None).await.expect("a block");
    let requests = [stage.request(SHORTLY).await, stage.request(LIMIT).await];
    stage.stop().await;
    stage.database.execute(ARM).await;
    change_stamp(&stage, "server").await;
    let [shortly, longer] = requests.map(Loss::Computed);
    let refused = recover_by(&stage.settings, shortly).await;
    let refused = refused.expect_err("it is too old").to_string();
    assert!(
        refused.contains("longer than `failover.within`"),
        "{refused}"
    );
    let fenced = recover_by(&stage.settings, longer).await;
    assert!(fenced.expect("it is fenced").fence.is_some());
}

for_each_backend!(a_recovery_is_numbered_after_a_row_that_is_missing);

async fn a_recovery_is_numbered_after_a_row_that_is_missing(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.stop().await;
    recover(&stage.settings, SKIP).await;
    recover(&stage.settings, SKIP).await;
    let lose = "DELETE FROM fence WHERE number = 1";
    stage.database.execute(lose).await;
    recover(&stage.settings, SKIP).await;
    let third = "SELECT COUNT(*) FROM fence WHERE number = 3";
    assert_eq!(stage.number(third).await, 1);
}

for_each_backend!(a_database_that_lacks_its_last_recovery_is_refused);

async fn a_database_that_lacks_its_last_recovery_is_refused(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.stop().await;
    recover(&stage.settings, SKIP).await;
    recover(&stage.settings, SKIP).await;
    let lose = "DELETE FROM fence WHERE number = 2";
    stage.database.execute(lose).await;
    stage.start().await;
    let refused = stage.reserve(5, None).await;
    assert!(matches!(refused, Err(StoreError::WentBack)), "{refused:?}");
    stage.stop().await;
    let named = recover_by(&stage.settings, of_sequence("orders", SKIP)).await;
    named.expect_err("nobody knows what all sequences have lost");
    recover(&stage.settings, SKIP).await;
    stage.start().await;
    let second = stage.reserve(5, None).await.expect("a block");
    assert_eq!(second.block.first(), 3_011);
}
