//! A MariaDB or MySQL server with a replica that follows it by GTID, and that may lag behind.

use std::time::Duration;

use super::{
    Link, Product, Proxy, Server,
    server::{ADMINISTRATOR, PASSWORD},
    wait,
};

const FOLLOW_LIMIT: Duration = Duration::from_secs(60);

/// A primary, and a replica that follows it by asynchronous replication.
pub struct ReplicaPair {
    primary: Server,
    replica: Server,
    /// The way of the replication.
    following: Proxy,
    /// The way of the program to the server that takes writes.
    pub callers: Proxy,
}

/// Returns the arguments of a server that writes a binary log, and that has this `server_id`. The
/// format of the log is the product's own default.
fn logged(product: Product, server_id: u32) -> Vec<String> {
    let mut arguments = vec![
        format!("--server-id={server_id}"),
        "--log-bin=binlog".to_owned(),
        "--relay-log=relay".to_owned(),
        "--sync-binlog=1".to_owned(),
    ];
    if product == Product::MySql {
        arguments.push("--gtid-mode=ON".to_owned());
        arguments.push("--enforce-gtid-consistency=ON".to_owned());
    }
    arguments
}

impl ReplicaPair {
    /// Starts a primary, and a replica that has nothing yet.
    pub async fn start(product: Product) -> Self {
        let primary = Server::start_of_with(product, logged(product, 1)).await;
        let replica = Server::start_of_with(product, logged(product, 2)).await;
        let following = Proxy::to(primary.port()).await;
        let callers = Proxy::to(primary.port()).await;
        let port = following.port();
        let (follow, start) = match product {
            Product::MySql => (
                format!(
                    "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', \
                     SOURCE_PORT = {port}, SOURCE_USER = '{ADMINISTRATOR}', \
                     SOURCE_PASSWORD = '{PASSWORD}', SOURCE_CONNECT_RETRY = 1, \
                     SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
                ),
                "START REPLICA",
            ),
            Product::Postgres15 | Product::Postgres18 | Product::MariaDb => (
                format!(
                    "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, \
                     MASTER_USER = '{ADMINISTRATOR}', MASTER_PASSWORD = '{PASSWORD}', \
                     MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos"
                ),
                "START SLAVE",
            ),
        };
        replica.administrate(&follow).await;
        replica.administrate(start).await;
        Self {
            primary,
            replica,
            following,
            callers,
        }
    }

    pub fn primary(&self) -> &Server {
        &self.primary
    }

    /// Returns the server that takes writes after a promotion.
    pub fn replica(&self) -> &Server {
        &self.replica
    }

    /// Waits until the replica has all that the primary has committed now.
    pub async fn catch_up(&self) {
        let is_mysql = self.primary.product() == Product::MySql;
        let written = match is_mysql {
            true => "SELECT CONCAT(@@global.gtid_executed, '')",
            false => "SELECT CONCAT(@@global.gtid_binlog_pos, '')",
        };
        let written = self.primary.say(written).await;
        let is_there = match is_mysql {
            true => {
                format!("SELECT IF(GTID_SUBSET('{written}', @@global.gtid_executed), 'yes', 'no')")
            }
            false => format!("SELECT IF(MASTER_GTID_WAIT('{written}', 0.1) = 0, 'yes', 'no')"),
        };
        wait::until("the replica follows", FOLLOW_LIMIT, async || {
            (self.replica.say(&is_there).await == "yes").then_some(())
        })
        .await;
    }

    /// Keeps from the replica all that is committed from now on.
    pub fn hold(&self) {
        self.following.set(Link::BlackHole);
    }

    /// Kills the primary.
    pub fn lose_primary(&mut self) {
        self.primary.kill();
        self.following.set(Link::Cut);
    }

    /// Makes the replica a server of its own, which follows no other one.
    pub async fn promote(&self) {
        let orders = match self.primary.product() {
            Product::MySql => ["STOP REPLICA", "RESET REPLICA ALL"],
            Product::Postgres15 | Product::Postgres18 | Product::MariaDb => {
                ["STOP SLAVE", "RESET SLAVE ALL"]
            }
        };
        for order in orders {
            self.replica.administrate(order).await;
        }
    }

    /// Leads the program to the replica.
    pub fn lead_to_replica(&self) {
        self.callers.lead_to(self.replica.port());
    }
}
