//! Says what a server's error code means for a statement or a connection.

use std::fmt;

use sea_orm::sqlx::{
    error::DatabaseError, mysql::MySqlDatabaseError, postgres::PgDatabaseError, sqlite::SqliteError,
};

use crate::failure::Cause;

/// An error code, in its server's own numbering.
pub enum ServerErrorCode<'a> {
    /// A SQLSTATE (appendix A of PostgreSQL's manual), and the message. The message is only looked
    /// at, because poolers report most of their errors under one code.
    Postgres(&'a str, &'a str),
    /// An error number of MySQL or MariaDB. Their SQLSTATEs are too coarse.
    MySql(u16),
    /// An extended result code of SQLite.
    Sqlite(i32),
    Other,
}

impl fmt::Display for ServerErrorCode<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(code, _) => write!(formatter, "SQLSTATE {code}"),
            Self::MySql(code) => write!(formatter, "MySQL error {code}"),
            Self::Sqlite(code) => write!(formatter, "SQLite result code {code}"),
            Self::Other => formatter.write_str("an error without a code"),
        }
    }
}

impl<'a> ServerErrorCode<'a> {
    pub fn of(said: &'a dyn DatabaseError) -> Self {
        if let Some(said) = said.try_downcast_ref::<PgDatabaseError>() {
            Self::Postgres(said.code(), said.message())
        } else if let Some(said) = said.try_downcast_ref::<MySqlDatabaseError>() {
            Self::MySql(said.number())
        } else if said.try_downcast_ref::<SqliteError>().is_some() {
            let code = said.code().and_then(|code| code.parse().ok());
            code.map_or(Self::Other, Self::Sqlite)
        } else {
            Self::Other
        }
    }

    /// Returns why the server refuses this connection however often it is tried, and what to do. It
    /// is not for codes that [pass](Self::passing) by themselves.
    pub fn refusal(&self) -> String {
        const LOGIN: (&str, &str) = (
            "the database refuses this user or password",
            "correct them in the URL, or on the server",
        );
        const DATABASE: (&str, &str) = (
            "the server has no database of this name",
            "correct the name in the URL, or create the database",
        );
        let (what, to_do) = match self {
            Self::Postgres("28P01", _) | Self::MySql(1045 | 1698) => LOGIN,
            Self::Postgres("28000", _) | Self::MySql(1130 | 3159) => (
                "the database admits no such user from this host, or not without TLS",
                "allow it on the server (pg_hba.conf, CREATE USER), or ask for TLS in the URL",
            ),
            Self::Postgres("3D000", _) | Self::MySql(1049) => DATABASE,
            Self::Postgres("42501", _) | Self::MySql(1044) => (
                "the user may not use this database",
                "grant the user the right to connect to it",
            ),
            Self::Postgres("08P01", message) if message.contains("no such database") => DATABASE,
            Self::Postgres("08P01", message) if is_login_of_a_pooler(message) => LOGIN,
            Self::MySql(1251) => (
                "the database wants this user to log in in another way",
                "give the user a password of a plugin that this program knows",
            ),
            Self::MySql(1129) => (
                "the database has blocked this host after failed connections",
                "run FLUSH HOSTS on the server, and see its log for what failed",
            ),
            Self::Sqlite(_) => return self.answer(),
            Self::Postgres(..) | Self::MySql(_) | Self::Other => {
                return format!("the database refuses the connection: {}", self.answer());
            }
        };
        format!("{what} ({self}): {to_do}")
    }

    /// Returns what the server's answer to a statement means, and what to do if waiting does not
    /// help.
    pub fn answer(&self) -> String {
        let (what, to_do) = match self {
            Self::Postgres("42P01", _) | Self::MySql(1146) => {
                ("a table is missing", "restore it from a backup")
            }
            Self::Postgres("42703", _) | Self::MySql(1054) => {
                ("a column is missing", "restore the table from a backup")
            }
            Self::Postgres("42883", _) | Self::MySql(1305) => (
                "the server lacks a function that Odometer uses",
                "see in docs/databases.md which servers it works with",
            ),
            Self::Postgres("26000" | "42P05", _) => (
                "a prepared statement is another session's, as behind a pooler",
                "add ?pgbouncer=true to the URL",
            ),
            Self::Postgres("53100", _) | Self::MySql(1021 | 1114) => {
                ("the database's disk is full", "make room on it")
            }
            Self::Sqlite(code) if *code & 0xff == 10 => (
                "the SQLite file cannot be read or written",
                "see that it is a file, and that its disk works",
            ),
            Self::Sqlite(code) if *code & 0xff == 11 => {
                ("the SQLite file is damaged", "restore it from a backup")
            }
            Self::Sqlite(code) if *code & 0xff == 13 => {
                ("the disk of the SQLite file is full", "make room on it")
            }
            Self::Sqlite(code) if *code & 0xff == 14 => (
                "the SQLite file cannot be opened",
                "see that it is a file, and that this user may read and write it",
            ),
            Self::Sqlite(code) if *code & 0xff == 26 => (
                "the file is no SQLite database",
                "name another file, or one that does not exist yet",
            ),
            Self::Postgres(..) | Self::MySql(_) | Self::Sqlite(_) | Self::Other => {
                return format!("{self}: see the database's log, and look the code up");
            }
        };
        format!("{what} ({self}): {to_do}")
    }

    /// Returns why the server cannot be used now, if this passes by itself.
    pub fn passing(&self) -> Option<&'static str> {
        const POOLER: &str =
            "the pooler in front of the database has no connection for us, and its log says why";
        const NO_CONNECTION: &str = "the database has no connection left";
        match self {
            Self::Postgres("53300", _) | Self::MySql(1040 | 1203 | 1226) => Some(NO_CONNECTION),
            Self::MySql(1461) => Some("the database takes no more prepared statements"),
            Self::Postgres("53200", _) | Self::MySql(1041 | 1135) => {
                Some("the database has no memory left for a connection")
            }
            Self::Postgres("57P03", _) => Some("the database is starting, stopping or recovering"),
            Self::Postgres(code, _) if code.starts_with("57P") => {
                Some("the database is stopping, or ended the session")
            }
            Self::MySql(1053 | 1079 | 1080) => Some("the database is stopping"),
            // From Galera, and from a server that was set offline.
            Self::MySql(1047 | 3032) => Some("the database is not ready for statements"),
            Self::MySql(1927 | 3169 | 4031) => Some("the database ended the session"),
            Self::MySql(1152 | 1158..=1161) => Some("the database lost the connection"),
            Self::Postgres("08P01", message)
                if message.contains("no such database") || is_login_of_a_pooler(message) =>
            {
                None
            }
            // PgCat and Supavisor report this under codes for failures inside a server.
            Self::Postgres("58000" | "XX000", message) if has_no_place_in_a_pool(message) => {
                Some(POOLER)
            }
            Self::Postgres(code, _) if code.starts_with("08") => Some(POOLER),
            // Codes from 2000 on are a client's, which a proxy passes on. Codes from 9000 on are a
            // proxy's own.
            Self::MySql(2000..=2999 | 9000..) => Some(POOLER),
            Self::Postgres(..) | Self::MySql(_) | Self::Sqlite(_) | Self::Other => None,
        }
    }

    /// Returns the cause of a failure after which the statement certainly has no effect.
    pub fn cause(&self, text: String) -> Cause {
        if let Some(what) = self.passing() {
            return Cause::Away(format!("{what} ({self})"));
        }
        match self {
            // Transactions met: serialization failure, deadlock, lock wait timeout, or a table that
            // is being changed. For SQLite: busy or locked.
            Self::Postgres("40001" | "40P01" | "55P03", _)
            | Self::MySql(1020 | 1205 | 1213 | 1412 | 1615) => Cause::Contention,
            Self::Sqlite(code) if matches!(*code & 0xff, 5 | 6) => Cause::Contention,
            // The server ended the statement: by `statement_timeout`, `max_statement_time`,
            // `max_execution_time`, or a cancel. Servers look for these only before a commit
            // begins.
            Self::Postgres("57014", _) | Self::MySql(1317 | 1969 | 3024) => Cause::Interrupted,
            Self::Postgres("25006", _) | Self::MySql(1290 | 1792 | 1836) => Cause::ReadOnly(text),
            Self::Sqlite(code) if *code & 0xff == 8 => Cause::ReadOnly(text),
            // For MySQL: no room in the file system, and no room in a tablespace.
            Self::Postgres("53100", _) | Self::MySql(1021 | 1114) => Cause::DiskFull(self.answer()),
            Self::Sqlite(code) if *code & 0xff == 13 => Cause::DiskFull(self.answer()),
            Self::Postgres("42501", _) | Self::MySql(1044 | 1142 | 1143 | 1227 | 1370) => {
                Cause::Denied(text)
            }
            Self::Postgres(..) | Self::MySql(_) | Self::Sqlite(_) | Self::Other => {
                Cause::Server(self.answer())
            }
        }
    }

    /// Returns whether the server lacks a function, a table or a variable, or keeps it from this user.
    pub fn is_of_what_it_lacks(&self) -> bool {
        match self {
            // `insufficient_privilege`, `undefined_function`, `feature_not_supported` and
            // `object_not_in_prerequisite_state`.
            Self::Postgres(code, _) => matches!(*code, "42501" | "42883" | "0A000" | "55000"),
            Self::MySql(code) => matches!(
                *code,
                1044 | 1046 | 1049 | 1109 | 1142 | 1143 | 1146 | 1193 | 1227 | 1305 | 1370
            ),
            Self::Sqlite(_) | Self::Other => false,
        }
    }

    /// Returns whether a pooler refuses a startup parameter that it does not pass on.
    pub fn is_of_a_pooler(&self) -> bool {
        matches!(self, Self::Postgres("08P01", message) if message.contains("startup parameter"))
    }

    /// Returns whether the end of the statement is unknown: the server ends the connection, or the
    /// disk failed.
    pub fn is_uncertain(&self) -> bool {
        match self {
            Self::Postgres(code, _) => {
                // Codes about connections and the server itself. A pooler's own codes are among
                // them.
                ["57P", "08", "58", "XX"]
                    .iter()
                    .any(|class| code.starts_with(class))
                    || *code == "40003"
            }
            Self::MySql(code) => matches!(
                *code,
                // Codes from 2000 on are a client's, which a proxy passes on, and from 9000 on a
                // proxy's own.
                1053 | 1080 | 1152 | 1158..=1161 | 1180 | 1927 | 2000..=2999 | 3169 | 4031 | 9000..
            ),
            Self::Sqlite(code) => *code & 0xff == 10,
            Self::Other => true,
        }
    }
}

fn has_no_place_in_a_pool(message: &str) -> bool {
    message.contains("the pool") || message.to_ascii_lowercase().contains("max client")
}

/// Returns whether a pooler refuses a login. It does so under the code of its other errors.
fn is_login_of_a_pooler(message: &str) -> bool {
    ["authentication failed", "no such user", "wrong password"]
        .iter()
        .any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_a_pooler(message: &str) -> ServerErrorCode<'_> {
        ServerErrorCode::Postgres("08P01", message)
    }

    #[test]
    fn a_refusal_is_told_from_a_database_that_is_away() {
        for refused in [
            ServerErrorCode::Postgres("28P01", ""),
            ServerErrorCode::Postgres("3D000", ""),
            ServerErrorCode::Postgres("55000", ""),
            ServerErrorCode::Postgres("58030", ""),
            ServerErrorCode::Postgres("XX000", ""),
            ServerErrorCode::MySql(1045),
            ServerErrorCode::MySql(1049),
            ServerErrorCode::MySql(1129),
            ServerErrorCode::MySql(1305),
            ServerErrorCode::Sqlite(26),
            ServerErrorCode::Other,
            of_a_pooler("FATAL: password authentication failed"),
            of_a_pooler("no such database: odometer"),
        ] {
            assert_eq!(refused.passing(), None, "{refused}");
            for said in [refused.refusal(), refused.answer()] {
                assert!(said.contains(&refused.to_string()), "{refused}: {said}");
            }
        }
        for away in [
            ServerErrorCode::Postgres("53300", ""),
            ServerErrorCode::Postgres("57P01", ""),
            ServerErrorCode::Postgres("57P02", ""),
            ServerErrorCode::Postgres("57P03", ""),
            ServerErrorCode::Postgres("08006", ""),
            ServerErrorCode::Postgres("58000", "could not get connection from the pool"),
            ServerErrorCode::MySql(1040),
            ServerErrorCode::MySql(1047),
            ServerErrorCode::MySql(1053),
            ServerErrorCode::MySql(1203),
            ServerErrorCode::MySql(1226),
            ServerErrorCode::MySql(1461),
            ServerErrorCode::MySql(9001),
            ServerErrorCode::Postgres("XX000", "Max client connections reached"),
            ServerErrorCode::Postgres("XX000", "MaxClientsInSessionMode: max clients reached"),
            of_a_pooler("server conn crashed?"),
        ] {
            assert!(away.passing().is_some(), "{away}");
        }
    }

    #[test]
    fn what_certainly_did_not_happen_has_its_cause() {
        let cause = |code: ServerErrorCode<'_>| code.cause("what it said".to_owned());
        for code in [
            ServerErrorCode::Postgres("55P03", ""),
            ServerErrorCode::MySql(1205),
            ServerErrorCode::MySql(1412),
            ServerErrorCode::MySql(1615),
            ServerErrorCode::Sqlite(5),
        ] {
            assert!(matches!(cause(code), Cause::Contention));
        }
        for code in [
            ServerErrorCode::Postgres("57014", ""),
            ServerErrorCode::MySql(1969),
            ServerErrorCode::MySql(3024),
        ] {
            assert!(matches!(cause(code), Cause::Interrupted));
        }
        for code in [
            ServerErrorCode::Postgres("53100", ""),
            ServerErrorCode::MySql(1114),
            ServerErrorCode::Sqlite(13),
        ] {
            assert!(matches!(cause(code), Cause::DiskFull(_)));
        }
        for code in [
            ServerErrorCode::Postgres("42501", ""),
            ServerErrorCode::MySql(1142),
        ] {
            assert!(matches!(cause(code), Cause::Denied(_)));
        }
        assert!(matches!(
            cause(ServerErrorCode::MySql(1064)),
            Cause::Server(_)
        ));
    }

    #[test]
    fn a_startup_parameter_shows_a_pooler() {
        assert!(of_a_pooler("unsupported startup parameter: options").is_of_a_pooler());
        assert!(!of_a_pooler("no such user: odometer").is_of_a_pooler());
    }
}
