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
        let SecondStandby { server, following } = SecondStandby::of(&primary).await;
        Self {
            primary,
            standby: server,
            following,
            callers,
        }
    }

    pub fn primary(&self) -> &Server {
        &self.primary
    }

    /// Waits until the standby has all that the primary has committed now.
    pub async fn catch_up(&self) {
        caught_up(&self.primary, &self.standby).await;
    }

    /// Starts another standby of the primary.
    pub async fn second(&self) -> SecondStandby {
        SecondStandby::of(&self.primary).await
    }

    /// Kills the standby, which was promoted, and leads the program to another one.
    pub async fn fail_over_to(&mut self, second: &SecondStandby) {
        self.standby.kill();
        second.server.administrate("SELECT pg_promote()").await;
        self.callers.lead_to(second.server.port());
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

/// Another standby of a primary.
pub struct SecondStandby {
    pub server: Server,
    /// The way of the replication.
    following: Proxy,
}

impl SecondStandby {
    async fn of(primary: &Server) -> Self {
        let following = Proxy::to(primary.port()).await;
        let copy = directory("standby");
        postgres::copy_as_standby(primary.product(), copy.path(), following.port());
        let server = Server::start_in(primary.product(), copy).await;
        Self { server, following }
    }

    /// Waits until it has all that the primary of `pair` has committed now, and keeps from it all
    /// that is committed from then on.
    pub async fn catch_up_and_hold(&self, pair: &Standby) {
        caught_up(&pair.primary, &self.server).await;
        self.following.set(Link::BlackHole);
    }
}

/// Waits until a standby has all that its primary has committed now.
async fn caught_up(primary: &Server, standby: &Server) {
    let written = primary.say("SELECT pg_current_wal_flush_lsn()::text").await;
    let is_there = format!("SELECT (pg_last_wal_replay_lsn() >= '{written}')::text");
    wait::until("the standby follows", FOLLOW_LIMIT, async || {
        (standby.say(&is_there).await == "true").then_some(())
    })
    .await;
}
