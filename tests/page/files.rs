//! Tests the files of the page, as any client gets them.

use reqwest::Method;

use crate::support::{Backend, Program, TestDatabase, run};

#[test]
fn the_page_is_served_under_a_strict_policy() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        let mut files = vec!["/".to_owned()];
        let mut n_seen = 0;
        while let Some(path) = files.get(n_seen).cloned() {
            n_seen += 1;
            let path = path.as_str();
            let reply = client.get(path).await.expect("a reply");
            assert_eq!(reply.status, 200, "{path}");
            let policy = reply.header("content-security-policy").unwrap_or_default();
            assert_eq!(
                policy,
                "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                 img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            );
            assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
            assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
            assert_eq!(reply.header("cache-control"), Some("no-cache"));
            let kind = reply.header("content-type").unwrap_or_default();
            let expected = match path.rsplit_once('.') {
                Some((_, "css")) => "text/css; charset=utf-8",
                Some((_, "js")) => "text/javascript; charset=utf-8",
                Some((_, "svg")) => "image/svg+xml",
                _ => "text/html; charset=utf-8",
            };
            assert_eq!(kind, expected, "{path}");
            for foreign in ["http://", "https://", "//cdn", "style=\"", "onclick=\""] {
                let namespace = reply.body.replace("http://www.w3.org/2000/svg", "");
                assert!(!namespace.contains(foreign), "{foreign} in {path}");
            }
            for file in linked(&reply.body) {
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        assert_eq!(n_seen, 27, "{files:?}");
    });
}

#[test]
fn a_file_that_is_known_is_not_sent_again() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        for path in ["/", "/page/main.js"] {
            let whole = client.get(path).await.expect("a reply");
            let tag = whole.header("etag").expect("a tag").to_owned();
            let known = [("if-none-match", tag.as_str())];
            let again = client.send(Method::GET, path, &known, None).await;
            let again = again.expect("a reply");
            assert_eq!((again.status, again.body.as_str()), (304, ""), "{path}");
            assert_eq!(again.header("etag"), Some(tag.as_str()), "{path}");
            for (given, expected) in [
                ("\"other\"", 200),
                ("W/\"other\"", 200),
                (&format!("W/{tag}"), 304),
                (&format!("\"other\", {tag}"), 304),
                (&format!("\"other\",W/{tag}"), 304),
                ("*", 304),
            ] {
                let headers = [("if-none-match", given)];
                let reply = client.send(Method::GET, path, &headers, None).await;
                assert_eq!(reply.expect("a reply").status, expected, "{path}: {given}");
            }
            let head = client.send(Method::HEAD, path, &[], None).await;
            let head = head.expect("a reply");
            assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
            assert_eq!(head.header("etag"), Some(tag.as_str()), "{path}");
            let post = client.post(path).await.expect("a reply");
            assert_eq!(post.status, 405, "{path}");
            assert_eq!(post.header("allow"), Some("GET, HEAD"), "{path}");
        }
        for path in ["/page/", "/page/none.js", "/page/../main.js", "/index.html"] {
            let reply = client.get(path).await.expect("a reply");
            assert_eq!(reply.status, 404, "{path}");
            assert_eq!(reply.code().as_deref(), Some("route_not_found"), "{path}");
            assert_eq!(reply.header("cache-control"), Some("no-store"), "{path}");
        }
    });
}

/// Returns the paths of the files that a page or one of its modules needs.
fn linked(text: &str) -> Vec<String> {
    let of_page = text.split("=\"page/").skip(1);
    let of_page = of_page.filter_map(|rest| rest.split('"').next());
    let of_module = text.split(" from './").skip(1);
    let of_module = of_module.filter_map(|rest| rest.split('\'').next());
    let files = of_page.chain(of_module);
    files.map(|file| format!("/page/{file}")).collect()
}
