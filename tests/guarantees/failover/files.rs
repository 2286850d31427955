//! An earlier state of a SQLite file takes the place of the file.

use std::{fs, path::PathBuf};

use super::{SKIP, WENT_BACK, one, recover};
use crate::support::{Backend, Options, Program, TestDatabase, run};

/// A SQLite file, and a backup of it that was made while the program was stopped.
struct File {
    _database: TestDatabase,
    path: PathBuf,
    backup: PathBuf,
    options: Options,
}

impl File {
    /// Gives a number, and makes a backup. Gives another number, which is returned.
    async fn backed_up(options: Options) -> (Self, i64) {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let path = PathBuf::from(database.url.trim_start_matches("sqlite:"));
        let file = Self {
            backup: path.with_extension("backup"),
            options: options.database(&database.url),
            _database: database,
            path,
        };
        file.reserve().await.expect("a number");
        fs::copy(&file.path, &file.backup).expect("the file is ours");
        let given = file.reserve().await.expect("a number");
        (file, given)
    }

    /// Starts the program, asks for a number of the file, and stops the program.
    async fn reserve(&self) -> Result<i64, String> {
        let program = self.options.start().await;
        let answer = one(&program.client()).await;
        program.stop().await;
        answer
    }

    fn put_back(&self) {
        for end in ["-wal", "-shm"] {
            let mut path = self.path.clone().into_os_string();
            path.push(end);
            // A tidy end leaves no such file.
            let _gone = fs::remove_file(path);
        }
        fs::copy(&self.backup, &self.path).expect("the file is ours");
    }
}

#[test]
fn an_earlier_state_of_a_sqlite_file_is_refused_until_it_is_recovered() {
    run(async {
        let (file, given) = File::backed_up(Program::options()).await;
        file.put_back();
        for _ in 0..2 {
            assert_eq!(file.reserve().await, Err(WENT_BACK.to_owned()));
        }
        recover(&file.options, &["--skip", SKIP]);
        assert!(file.reserve().await > Ok(given));
    });
}

#[test]
fn without_its_stamp_an_earlier_state_of_a_sqlite_file_repeats_numbers() {
    run(async {
        let options = Program::options().without_guards("no-stamp");
        let (file, given) = File::backed_up(options).await;
        file.put_back();
        assert_eq!(file.reserve().await, Ok(given), "nothing is found");
    });
}

#[test]
fn a_sqlite_file_in_another_place_is_refused_until_nothing_was_lost() {
    run(async {
        let (file, given) = File::backed_up(Program::options()).await;
        let place = file.path.with_extension("moved");
        fs::copy(&file.path, &place).expect("the file is ours");
        let moved = File {
            // A SQLite file has no failover, so this makes no difference.
            options: Program::options()
                .env("ODOMETER_FAILOVER__LOSSLESS", "true")
                .database(&format!("sqlite:{}", place.display())),
            path: place,
            ..file
        };
        assert_eq!(moved.reserve().await, Err(WENT_BACK.to_owned()));
        recover(&moved.options, &["--nothing-was-lost"]);
        assert_eq!(moved.reserve().await, Ok(given + 1));
    });
}

#[test]
fn a_new_sqlite_file_in_the_place_of_another_one_is_used() {
    run(async {
        let (file, _given) = File::backed_up(Program::options()).await;
        fs::remove_file(&file.path).expect("the file is ours");
        assert_eq!(file.reserve().await, Ok(1));
        assert_eq!(file.reserve().await, Ok(2));
    });
}

#[test]
fn a_killed_program_finds_its_sqlite_file_as_it_left_it() {
    run(async {
        let (file, given) = File::backed_up(Program::options()).await;
        let mut program = file.options.start_ready().await;
        assert_eq!(one(&program.client()).await, Ok(given + 1));
        program.kill();
        assert_eq!(file.reserve().await, Ok(given + 2));
    });
}
