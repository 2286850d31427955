//! A PostgreSQL server with a standby that follows it, and that may lag behind.

use std::time::Duration;

use super::{Link, Proxy, Server, directory, postgres, wait};

const FOLLOW_LIMIT: Duration = Duration::from_secs(60);

/// A primary, and a standby that follows it by asynchronous replication.
pub struct Standby {
    primary: Server,
    standby: Server,
    /// The way of the replication.
    following: Proxy,
    /// The way of the program to the server that takes writes.
    pub callers: Proxy,
}

impl Standby {
    /// Starts a standby of `primary`.
    pub async fn of(primary: Server) -> Self {
        let callers = Proxy::to(primary.port()).await;
        Self::behind(callers, primary).await
    }

    /// Lets a new standby follow the server that took over, behind the same way of the program.
    pub async fn follow_again(self) -> Self {
        Self::behind(self.callers, self.standby).await
    }

    async fn behind(callers: Proxy, primary: Server) -> Self {
        let following = Proxy::to(primary.port()).await;
        let copy = directory("standby");
        postgres::copy_as_standby(primary.product(), copy.path(), following.port());
        let standby = Server::start_in(primary.product(), copy).await;
        Self {
            primary,
            standby,
            following,
            callers,
        }
    }

    pub fn primary(&self) -> &Server {
        &self.primary
    }

    /// Waits until the standby has all that the primary has committed now.
    pub async fn catch_up(&self) {
        let written = self.primary.say("SELECT pg_current_wal_flush_lsn()::text");
        let written = written.await;
        let is_there = format!("SELECT (pg_last_wal_replay_lsn() >= '{written}')::text");
        wait::until("the standby follows", FOLLOW_LIMIT, async || {
            (self.standby.say(&is_there).await == "true").then_some(())
        })
        .await;
    }

    /// Keeps from the standby all that is committed from now on.
    pub fn hold(&self) {
        self.following.set(Link::BlackHole);
    }

    /// Kills the primary.
    pub fn lose_primary(&mut self) {
        self.primary.kill();
        self.following.set(Link::Cut);
    }

    /// Promotes the standby.
    pub async fn promote(&self) {
        self.standby.administrate("SELECT pg_promote()").await;
    }

    /// Leads the program to the standby.
    pub fn lead_to_standby(&self) {
        self.callers.lead_to(self.standby.port());
    }

    /// Returns the server that takes writes after a promotion.
    pub fn standby(&self) -> &Server {
        &self.standby
    }
}
