//! Tests that the documents name the servers on which the promises were tested.

use crate::support::{Backend, Product, Server, TestDatabase, run, settings};

#[test]
fn the_guarantees_name_the_versions_of_the_servers_met() {
    let text = std::fs::read_to_string(settings::repository().join("GUARANTEES.md"));
    let text = text.expect("it is there");
    let sentence = text
        .lines()
        .find(|line| line.starts_with("Tests of servers run on "))
        .expect("it names the servers");
    run(async move {
        for product in Product::ALL {
            let database = TestDatabase::empty_on(Server::shared_of(product).await).await;
            let rows = database.query("SELECT version()").await;
            let said: String = rows[0].try_get_by_index(0).expect("a text");
            let named = named(product, &said);
            assert!(
                sentence.contains(&named),
                "{said}: no {named} in: {sentence}"
            );
        }
    });
}

/// Returns the name and version of a server as the documents write them.
fn named(product: Product, said: &str) -> String {
    let name = match (product.backend(), said.contains("MariaDB")) {
        (Backend::Postgres, _) => {
            let number = said.strip_prefix("PostgreSQL ").expect(said);
            let major = number.split(['.', ' ']).next().expect(said);
            return format!("PostgreSQL {major}");
        }
        (_, true) => "MariaDB",
        (_, false) => "MySQL",
    };
    let parts: Vec<&str> = said.split(['.', '-']).collect();
    format!("{name} {}.{}", parts[0], parts[1])
}
