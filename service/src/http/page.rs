//! The page for people: files that are part of the program, under a policy by which a browser runs
//! nothing else and asks nobody else.

use std::sync::LazyLock;

use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::{HttpRequest, HttpResponse};
use sha2::{Digest, Sha256};

use super::problem::{Code, Problem};

/// What a browser may do with the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// A file of the page.
struct Asset {
    /// Below `/page/`; that of `/` is empty.
    name: &'static str,
    media_type: &'static str,
    text: &'static str,
    tag: HeaderValue,
}

macro_rules! assets {
    ($($name:literal, $media_type:expr, $file:literal;)+) => {
        static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
            vec![$(Asset::new($name, $media_type, include_str!(concat!("page/", $file)))),+]
        });
    };
}

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

assets! {
    "", "text/html; charset=utf-8", "index.html";
    "page.css", "text/css; charset=utf-8", "page.css";
    "icon.svg", "image/svg+xml", "icon.svg";
    "main.js", JAVASCRIPT, "main.js";
    "api.js", JAVASCRIPT, "api.js";
    "format.js", JAVASCRIPT, "format.js";
    "dom.js", JAVASCRIPT, "dom.js";
    "overview.js", JAVASCRIPT, "overview.js";
    "sequence.js", JAVASCRIPT, "sequence.js";
    "facts.js", JAVASCRIPT, "facts.js";
    "actions.js", JAVASCRIPT, "actions.js";
    "chart.js", JAVASCRIPT, "chart.js";
}

impl Asset {
    fn new(name: &'static str, media_type: &'static str, text: &'static str) -> Self {
        Self {
            name,
            media_type,
            text,
            tag: tag_of(text),
        }
    }
}

/// Answers `/` and `/page/{file}`.
pub(super) async fn page(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let name = request.match_info().get("file").unwrap_or_default();
    let whole = request.match_info().get("file").is_none();
    let found = ASSETS.iter().find(|asset| asset.name == name);
    let asset = found.filter(|asset| asset.name.is_empty() == whole);
    let asset = asset
        .ok_or_else(|| Problem::new(Code::RouteNotFound, "The page has no file of this name."))?;
    let is_known = request
        .headers()
        .get_all(header::IF_NONE_MATCH)
        .any(|given| names(given, &asset.tag));
    let mut response = if is_known {
        HttpResponse::NotModified()
    } else {
        HttpResponse::Ok()
    };
    response
        .insert_header((header::ETAG, asset.tag.clone()))
        // Kept, and asked for each time whether it is another one since.
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header((OPENER_POLICY, "same-origin"))
        .insert_header((RESOURCE_POLICY, "same-origin"));
    if is_known {
        return Ok(response.finish());
    }
    Ok(response
        .insert_header((header::CONTENT_TYPE, asset.media_type))
        .body(asset.text))
}

/// Whether `If-None-Match` names this tag, weakly or not.
fn names(given: &HeaderValue, tag: &HeaderValue) -> bool {
    let (Ok(given), Ok(tag)) = (given.to_str(), tag.to_str()) else {
        return false;
    };
    let mut tags = given.split(',').map(str::trim);
    tags.any(|given| given == "*" || given.strip_prefix("W/").unwrap_or(given) == tag)
}

fn tag_of(text: &str) -> HeaderValue {
    let digest = Sha256::digest(text.as_bytes());
    let hex: String = digest
        .iter()
        .take(12)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    HeaderValue::from_str(&format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"0\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_known_by_what_browsers_send() {
        let tag = tag_of("text");
        let shown = tag.to_str().unwrap_or_default().to_owned();
        let known =
            |given: &str| HeaderValue::from_str(given).is_ok_and(|given| names(&given, &tag));
        assert_eq!(shown.len(), 26);
        assert!(known(&shown) && known(&format!("W/{shown}")) && known("*"));
        assert!(known(&format!("\"x\", {shown}")));
        assert!(!known("\"x\"") && !known(""));
        assert_ne!(tag, tag_of("other text"));
    }

    #[test]
    fn the_page_is_small() {
        let total: usize = ASSETS.iter().map(|asset| asset.text.len()).sum();
        assert!(total < 100_000, "{total} bytes");
    }
}
