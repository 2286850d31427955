//! Serves the documents that are part of the program: a page for each error code, and where the
//! others are.
//!
//! The pages are made from the Markdown of `docs/`, so no text is there twice.

use std::sync::LazyLock;

use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

use super::page::{Asset, HTML};
use crate::calls::problem::{Code, Problem};

const FRAME: &str = include_str!("page/document.html");
const ERRORS: &str = include_str!("../../../docs/errors.md");
const SUMMARY: &str = include_str!("../../../docs/SUMMARY.md");

/// The start of the page that leads to the documents. The links of [`SUMMARY`] follow.
const START: &str = "# Odometer\n\n\
    Numbers that never repeat, over HTTP, from an ordinary database.\n\n\
    - [Errors](errors): what each code means, and what you do.\n\
    - [The description of the API](../openapi.json), OpenAPI 3.1.\n\
    - [The page of this replica](../): its sequences, and a button that takes a number.\n\n\
    The whole guide is in the folder `docs` of the download. Each line below names a file of it.\n\n";
/// The heading of [`SUMMARY`] at which the documents for people who change the program begin.
const INSIDE: &str = "\n# Inside\n";

static PAGES: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let start = SUMMARY.split(INSIDE).next().unwrap_or_default();
    let start = start.replace("# Summary\n", "").replace("\n# ", "\n## ");
    let (around, sections) = sections(ERRORS);
    let mut pages = vec![
        page("", "Documents", "../", &format!("{START}{start}")),
        page("errors", "Errors", "../", &around),
    ];
    for (code, section) in sections {
        pages.push(page(code.as_str(), code.as_str(), "../../", section));
    }
    pages
});

/// Answers `/docs/`: what there is to read, and where.
pub(crate) async fn start(request: HttpRequest) -> Result<HttpResponse, Problem> {
    answer(&request, "")
}

/// Answers `/docs/errors`: every code, in one table.
pub(crate) async fn errors(request: HttpRequest) -> Result<HttpResponse, Problem> {
    answer(&request, "errors")
}

/// Answers `/docs/errors/{code}`, to which `type` of a problem leads.
pub(crate) async fn error(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let code = request.match_info().get("code").unwrap_or_default();
    if code_named(code).is_none() {
        let detail = "There is no error code of this name; `/docs/errors` lists them.";
        return Err(Problem::new(Code::RouteNotFound, detail));
    }
    answer(&request, code)
}

fn answer(request: &HttpRequest, name: &str) -> Result<HttpResponse, Problem> {
    let page = Asset::named(&PAGES, name);
    let page =
        page.ok_or_else(|| Problem::new(Code::Internal, "The document has no such part."))?;
    Ok(page.answer(request))
}

fn code_named(word: &str) -> Option<Code> {
    Code::ALL.iter().copied().find(|code| code.as_str() == word)
}

/// Splits the document of the errors at its headings. Returns everything that is not about one code
/// alone, and the section of each code.
fn sections(document: &str) -> (String, Vec<(Code, &str)>) {
    let starts = Parser::new(document).into_offset_iter();
    let starts = starts.filter(|(event, _)| is_start_of_a_section(event));
    let mut bounds: Vec<usize> = starts.map(|(_, range)| range.start).collect();
    bounds.insert(0, 0);
    bounds.push(document.len());
    let mut around = String::new();
    let mut of_codes = Vec::new();
    for (from, to) in bounds.iter().zip(bounds.iter().skip(1)) {
        let section = document.get(*from..*to).unwrap_or_default();
        let heading = section.lines().next().and_then(|it| it.strip_prefix("## "));
        match heading.and_then(code_named) {
            Some(code) => of_codes.push((code, section)),
            None => around.push_str(section),
        }
    }
    (around, of_codes)
}

fn is_start_of_a_section(event: &Event<'_>) -> bool {
    let level = HeadingLevel::H2;
    matches!(event, Event::Start(Tag::Heading { level: found, .. }) if *found == level)
}

/// Makes a page of Markdown. `root` is the way from the page to `/`, because a proxy may serve `/`
/// below a path of its own.
fn page(name: &'static str, title: &str, root: &str, markdown: &str) -> Asset {
    let mut text = String::new();
    html::push_html(&mut text, events(root, markdown).into_iter());
    let page = FRAME
        .replace("{title}", title)
        .replace("{root}", root)
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{text}", &text);
    Asset::new(name, HTML, Bytes::from(page))
}

/// Returns the events of a text, with links that lead somewhere on this server. A link to another
/// document becomes the name of its file.
fn events<'a>(root: &str, markdown: &'a str) -> Vec<Event<'a>> {
    let mut open: Option<CowStr<'a>> = None;
    let is_section = markdown.starts_with("## ");
    let parsed = Parser::new_ext(markdown, Options::ENABLE_TABLES);
    let events = parsed.map(|event| {
        if let Event::Start(Tag::Link { dest_url, .. }) = event {
            return match address(root, &dest_url) {
                Some(address) => Event::InlineHtml(format!("<a href=\"{address}\">").into()),
                None => {
                    open = Some(dest_url);
                    Event::Text("".into())
                }
            };
        }
        if matches!(event, Event::End(TagEnd::Link)) {
            return Event::InlineHtml(match open.take() {
                Some(file) => format!(" (<code>{}</code>)", path(&file)).into(),
                None => "</a>".into(),
            });
        }
        if is_section { as_title(event) } else { event }
    });
    events.collect()
}

/// Makes the heading of a section the title of a page, because the section of a code is a page of
/// its own.
fn as_title(mut event: Event<'_>) -> Event<'_> {
    if let Event::Start(Tag::Heading { level, .. }) | Event::End(TagEnd::Heading(level)) =
        &mut event
        && *level == HeadingLevel::H2
    {
        *level = HeadingLevel::H1;
    }
    event
}

/// Returns where a link leads on this server, or `None` if it leads to a document that the server
/// does not have.
fn address(root: &str, target: &str) -> Option<String> {
    match target.strip_prefix('#') {
        Some(anchor) => {
            code_named(anchor).map(|code| format!("{root}docs/errors/{}", code.as_str()))
        }
        None if target.contains(".md") => None,
        None => Some(target.to_owned()),
    }
}

/// Returns the path of a document in the folder of a download.
fn path(target: &str) -> String {
    let file = target.split('#').next().unwrap_or_default();
    match file.strip_prefix("../") {
        Some(file) => file.to_owned(),
        None if file.is_empty() => "docs/errors.md".to_owned(),
        None => format!("docs/{file}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use actix_web::body::to_bytes;
    use actix_web::test::TestRequest;

    use super::*;

    async fn text_of(name: &str) -> String {
        let request = TestRequest::get().to_http_request();
        let response = answer(&request, name).unwrap();
        let text = to_bytes(response.into_body()).await.ok().unwrap();
        String::from_utf8(text.to_vec()).unwrap()
    }

    #[actix_web::test]
    async fn each_code_has_a_page_with_its_status_and_title() {
        for code in Code::ALL {
            let text = text_of(code.as_str()).await;
            let heading = format!("<h1>{}</h1>", code.as_str());
            assert!(text.contains(&heading), "{text}");
            let status = format!(
                "<p>Status {}: {}.</p>",
                code.status().as_u16(),
                code.title()
            );
            assert!(text.contains(&status), "{status} is not in {text}");
            let n_of_others = text.matches("<h1>").count() + text.matches("<h2>").count();
            assert_eq!(n_of_others, 1, "{text}");
        }
        assert_eq!(PAGES.len(), Code::ALL.len() + 2);
    }

    #[actix_web::test]
    async fn the_list_leads_to_each_code() {
        let text = text_of("errors").await;
        for code in Code::ALL {
            let link = format!("<a href=\"../docs/errors/{}\">", code.as_str());
            assert!(text.contains(&link), "no {link}");
        }
    }

    #[actix_web::test]
    async fn no_page_leads_to_a_file_that_the_server_does_not_have() {
        let mut n_links = 0;
        for page in ["", "errors"]
            .into_iter()
            .chain(Code::ALL.iter().map(|it| it.as_str()))
        {
            let text = text_of(page).await;
            assert!(
                !text.contains("{root}") && !text.contains("{title}"),
                "{text}"
            );
            for rest in text.split(" href=\"").skip(1) {
                let target = rest.split('"').next().unwrap().trim_start_matches("../");
                let known = [
                    "",
                    "#main",
                    "docs/",
                    "docs/errors",
                    "openapi.json",
                    "errors",
                ];
                let is_known = known.contains(&target)
                    || target.starts_with("page/")
                    || target
                        .strip_prefix("docs/errors/")
                        .is_some_and(|it| code_named(it).is_some());
                assert!(is_known, "{page} leads to {target}");
                n_links += 1;
            }
        }
        assert!(n_links >= 250, "vacuous: {n_links} links");
    }

    #[test]
    fn a_link_to_another_document_becomes_its_file() {
        let mut text = String::new();
        let markdown = "See [the _end_](runbook.md#exhausted), [all](../README.md) and \
                        [this](#internal) or [that](#none).";
        html::push_html(&mut text, events("../../", markdown).into_iter());
        let shown = "<p>See the <em>end</em> (<code>docs/runbook.md</code>), \
                     all (<code>README.md</code>) and \
                     <a href=\"../../docs/errors/internal\">this</a> or \
                     that (<code>docs/errors.md</code>).</p>\n";
        assert_eq!(text, shown);
    }
}
