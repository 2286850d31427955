//! Serves the page for people: files that are part of the program.
//!
//! The files come with a policy. With it, a browser runs nothing else and asks no other server.

use std::sync::LazyLock;

use actix_web::http::header::{self, ETag, EntityTag, IfNoneMatch};
use actix_web::web::Bytes;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse};
use sha2::{Digest, Sha256};

use crate::calls::problem::{Code, Problem};

/// The policy that says what a browser may do with the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// The media type of a page.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

/// A file that browsers may keep.
pub(crate) struct Asset {
    /// The last part of the path. The file of `/` has an empty name.
    name: &'static str,
    media_type: &'static str,
    text: Bytes,
    tag: EntityTag,
}

macro_rules! assets {
    ($($name:literal, $media_type:expr, $file:literal;)+) => {
        static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
            let text = |text: &'static str| Bytes::from_static(text.as_bytes());
            vec![$(Asset::new($name, $media_type, text(include_str!(concat!("page/", $file))))),+]
        });
    };
}

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

assets! {
    "", HTML, "index.html";
    "page.css", "text/css; charset=utf-8", "page.css";
    "icon.svg", "image/svg+xml", "icon.svg";
    "main.js", JAVASCRIPT, "main.js";
    "access.js", JAVASCRIPT, "access.js";
    "api.js", JAVASCRIPT, "api.js";
    "format.js", JAVASCRIPT, "format.js";
    "dom.js", JAVASCRIPT, "dom.js";
    "words.js", JAVASCRIPT, "words.js";
    "caller.js", JAVASCRIPT, "caller.js";
    "notices.js", JAVASCRIPT, "notices.js";
    "overview.js", JAVASCRIPT, "overview.js";
    "live.js", JAVASCRIPT, "live.js";
    "kept.js", JAVASCRIPT, "kept.js";
    "others.js", JAVASCRIPT, "others.js";
    "replica.js", JAVASCRIPT, "replica.js";
    "welcome.js", JAVASCRIPT, "welcome.js";
    "copy.js", JAVASCRIPT, "copy.js";
    "sequence.js", JAVASCRIPT, "sequence.js";
    "now.js", JAVASCRIPT, "now.js";
    "chart.js", JAVASCRIPT, "chart.js";
    "facts.js", JAVASCRIPT, "facts.js";
    "definition.js", JAVASCRIPT, "definition.js";
    "actions.js", JAVASCRIPT, "actions.js";
    "lifecycle.js", JAVASCRIPT, "lifecycle.js";
    "creation.js", JAVASCRIPT, "creation.js";
    "dialog.js", JAVASCRIPT, "dialog.js";
}

impl Asset {
    /// Creates the file of this name.
    pub(crate) fn new(name: &'static str, media_type: &'static str, text: Bytes) -> Self {
        let tag = tag_of(&text);
        Self {
            name,
            media_type,
            text,
            tag,
        }
    }

    /// Returns the file of this name among `assets`.
    pub(crate) fn named<'a>(assets: &'a [Self], name: &str) -> Option<&'a Self> {
        assets.iter().find(|asset| asset.name == name)
    }

    /// Answers with the file, or with 304 if the caller has it already.
    pub(crate) fn answer(&self, request: &HttpRequest) -> HttpResponse {
        let is_known = match request.get_header() {
            Some(IfNoneMatch::Any) => true,
            Some(IfNoneMatch::Items(tags)) => tags.iter().any(|tag| tag.weak_eq(&self.tag)),
            None => false,
        };
        let mut response = if is_known {
            HttpResponse::NotModified()
        } else {
            HttpResponse::Ok()
        };
        response
            .insert_header(ETag(self.tag.clone()))
            // The browser keeps the file, and asks each time whether the file has changed.
            .insert_header((header::CACHE_CONTROL, "no-cache"))
            .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
            .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
            .insert_header((header::REFERRER_POLICY, "no-referrer"))
            .insert_header((header::CROSS_ORIGIN_OPENER_POLICY, "same-origin"))
            .insert_header((header::CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"));
        if is_known {
            return response.finish();
        }
        response
            .insert_header((header::CONTENT_TYPE, self.media_type))
            .body(self.text.clone())
    }
}

/// Answers `/` and `/page/{file}`.
pub(crate) async fn page(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let name = request.match_info().get("file").unwrap_or_default();
    let asset = Asset::named(&ASSETS, name)
        .ok_or_else(|| Problem::new(Code::RouteNotFound, "The page has no file of this name."))?;
    Ok(asset.answer(&request))
}

fn tag_of(text: &[u8]) -> EntityTag {
    let digest = Sha256::digest(text);
    let hex: String = digest
        .iter()
        .take(12)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    EntityTag::new_strong(hex)
}
