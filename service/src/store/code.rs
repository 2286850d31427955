//! A server's error codes, and what each of them means for a statement or a connection.

use std::fmt;

use sea_orm::sqlx::{
    error::DatabaseError, mysql::MySqlDatabaseError, postgres::PgDatabaseError, sqlite::SqliteError,
};

use super::error::Cause;

/// An error code, in its server's own numbering.
pub(super) enum Code<'a> {
    /// SQLSTATE, appendix A of PostgreSQL's manual, and the message, which is only looked at:
    /// poolers tell most of what they have to say under one code.
    Postgres(&'a str, &'a str),
    /// Error numbers of MySQL and MariaDB; their SQLSTATEs are too coarse.
    MySql(u16),
    /// SQLite's extended result code.
    Sqlite(i32),
    Other,
}

impl fmt::Display for Code<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Code::Postgres(code, _) => write!(formatter, "SQLSTATE {code}"),
            Code::MySql(code) => write!(formatter, "MySQL error {code}"),
            Code::Sqlite(code) => write!(formatter, "SQLite result code {code}"),
            Code::Other => formatter.write_str("an error without a code"),
        }
    }
}

impl<'a> Code<'a> {
    pub(super) fn of(said: &'a dyn DatabaseError) -> Self {
        if let Some(said) = said.try_downcast_ref::<PgDatabaseError>() {
            Code::Postgres(said.code(), said.message())
        } else if let Some(said) = said.try_downcast_ref::<MySqlDatabaseError>() {
            Code::MySql(said.number())
        } else if said.try_downcast_ref::<SqliteError>().is_some() {
            let code = said.code().and_then(|code| code.parse().ok());
            code.map_or(Code::Other, Code::Sqlite)
        } else {
            Code::Other
        }
    }

    /// Why the server will not have this connection however often it is tried, if that is so.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        const LOGIN: &str = "the database refuses this user or password";
        const HOST: &str = "the database admits no such user from this host, or not without TLS";
        const DATABASE: &str = "the server has no database of this name";
        const RIGHT: &str = "the user may not use this database";
        match self {
            Code::Postgres("28P01", _) => Some(LOGIN),
            Code::Postgres("28000", _) => Some(HOST),
            Code::Postgres("3D000", _) => Some(DATABASE),
            Code::Postgres("42501", _) => Some(RIGHT),
            Code::Postgres("08P01", message) => {
                if message.contains("no such database") {
                    Some(DATABASE)
                } else if message.contains("authentication failed")
                    || message.contains("no such user")
                    || message.contains("wrong password")
                {
                    Some(LOGIN)
                } else {
                    None
                }
            }
            Code::MySql(1045 | 1698) => Some(LOGIN),
            Code::MySql(1130 | 3159) => Some(HOST),
            Code::MySql(1049) => Some(DATABASE),
            Code::MySql(1044) => Some(RIGHT),
            Code::MySql(1251) => Some("the database wants this user to log in in another way"),
            Code::Sqlite(code) if matches!(*code & 0xff, 14 | 26) => {
                Some("the SQLite file cannot be opened, or is something else")
            }
            Code::Postgres(..) | Code::MySql(_) | Code::Sqlite(_) | Code::Other => None,
        }
    }

    /// Why no connection can be had for now, after "the database cannot be reached".
    pub(super) fn why_away(&self) -> String {
        let what = match self {
            Code::Postgres("53300", _) | Code::MySql(1040 | 1203 | 1226) => {
                "it has no connection left"
            }
            Code::Postgres("57P03", _) => "it is starting, stopping or recovering",
            Code::Postgres("57P01" | "57P02", _) | Code::MySql(1053) => "it is stopping",
            Code::Postgres("08P01", _) => {
                "the pooler in front of it has no connection for us, and its log says why"
            }
            Code::MySql(1129) => "it has blocked this host after failures (FLUSH HOSTS)",
            Code::Postgres(..) | Code::MySql(_) | Code::Sqlite(_) | Code::Other => {
                "it refuses the connection"
            }
        };
        format!("{what} ({self})")
    }

    /// The cause of a failure after which the statement certainly has no effect.
    pub(super) fn cause(&self, text: String) -> Cause {
        if self.contends() {
            Cause::Contention
        } else if self.is_interrupted() {
            Cause::Interrupted
        } else if self.is_read_only() {
            Cause::ReadOnly(text)
        } else if self.is_disk_full() {
            Cause::DiskFull
        } else if self.is_denied() {
            Cause::Denied(text)
        } else {
            Cause::Server(text)
        }
    }

    /// A startup parameter that a pooler does not pass on.
    pub(super) fn is_of_a_pooler(&self) -> bool {
        matches!(self, Code::Postgres("08P01", message) if message.contains("startup parameter"))
    }

    /// Serialization failure, deadlock, lock wait timeout; SQLite's busy and locked.
    fn contends(&self) -> bool {
        match self {
            Code::Postgres(code, _) => matches!(*code, "40001" | "40P01" | "55P03"),
            Code::MySql(code) => matches!(*code, 1205 | 1213 | 1020),
            Code::Sqlite(code) => matches!(*code & 0xff, 5 | 6),
            Code::Other => false,
        }
    }

    /// `statement_timeout`, `max_statement_time`, `max_execution_time`, or somebody's cancel: the
    /// servers look for these only before a commit begins.
    fn is_interrupted(&self) -> bool {
        match self {
            Code::Postgres(code, _) => *code == "57014",
            Code::MySql(code) => matches!(*code, 1317 | 1969 | 3024),
            Code::Sqlite(_) | Code::Other => false,
        }
    }

    fn is_read_only(&self) -> bool {
        match self {
            Code::Postgres(code, _) => *code == "25006",
            Code::MySql(code) => matches!(*code, 1290 | 1792 | 1836),
            Code::Sqlite(code) => *code & 0xff == 8,
            Code::Other => false,
        }
    }

    fn is_disk_full(&self) -> bool {
        match self {
            Code::Postgres(code, _) => *code == "53100",
            // No room in the file system, and no room in a tablespace.
            Code::MySql(code) => matches!(*code, 1021 | 1114),
            Code::Sqlite(code) => *code & 0xff == 13,
            Code::Other => false,
        }
    }

    fn is_denied(&self) -> bool {
        match self {
            Code::Postgres(code, _) => *code == "42501",
            Code::MySql(code) => matches!(*code, 1044 | 1142 | 1143 | 1227 | 1370),
            Code::Sqlite(_) | Code::Other => false,
        }
    }

    /// The server ends the connection, or the disk failed: the end of the statement is not told.
    pub(super) fn is_uncertain(&self) -> bool {
        match self {
            Code::Postgres(code, _) => {
                // Connections and the server itself; a pooler's own codes among them.
                ["57P", "08", "58", "XX"]
                    .iter()
                    .any(|class| code.starts_with(class))
                    || *code == "40003"
            }
            Code::MySql(code) => matches!(
                *code,
                // From 2000 on a client's, which a proxy passes on, and from 9000 on a proxy's own.
                1053 | 1080 | 1152 | 1158..=1161 | 1180 | 1927 | 2000..=2999 | 3169 | 4031 | 9000..
            ),
            Code::Sqlite(code) => *code & 0xff == 10,
            Code::Other => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_a_pooler(message: &str) -> Code<'_> {
        Code::Postgres("08P01", message)
    }

    #[test]
    fn a_refusal_is_told_from_a_database_that_is_away() {
        for refused in [
            Code::Postgres("28P01", ""),
            Code::Postgres("3D000", ""),
            Code::MySql(1045),
            Code::MySql(1049),
            Code::Sqlite(26),
            of_a_pooler("FATAL: password authentication failed"),
            of_a_pooler("no such database: odometer"),
        ] {
            assert!(refused.refusal().is_some(), "{refused}");
        }
        for away in [
            Code::Postgres("53300", ""),
            Code::Postgres("57P03", ""),
            Code::MySql(1040),
            Code::Other,
            of_a_pooler("server conn crashed?"),
        ] {
            assert!(away.refusal().is_none(), "{away}");
            assert!(away.why_away().contains(&away.to_string()), "{away}");
        }
    }

    #[test]
    fn what_certainly_did_not_happen_has_its_cause() {
        let cause = |code: Code<'_>| code.cause("what it said".to_owned());
        for code in [
            Code::Postgres("55P03", ""),
            Code::MySql(1205),
            Code::Sqlite(5),
        ] {
            assert!(matches!(cause(code), Cause::Contention));
        }
        for code in [
            Code::Postgres("57014", ""),
            Code::MySql(1969),
            Code::MySql(3024),
        ] {
            assert!(matches!(cause(code), Cause::Interrupted));
        }
        for code in [
            Code::Postgres("53100", ""),
            Code::MySql(1114),
            Code::Sqlite(13),
        ] {
            assert!(matches!(cause(code), Cause::DiskFull));
        }
        for code in [Code::Postgres("42501", ""), Code::MySql(1142)] {
            assert!(matches!(cause(code), Cause::Denied(_)));
        }
        assert!(matches!(cause(Code::MySql(1064)), Cause::Server(_)));
    }

    #[test]
    fn a_startup_parameter_shows_a_pooler() {
        assert!(of_a_pooler("unsupported startup parameter: options").is_of_a_pooler());
        assert!(!of_a_pooler("no such user: odometer").is_of_a_pooler());
    }
}
