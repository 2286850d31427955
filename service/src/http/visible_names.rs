//! Reads pages of those names that a caller may look at.

use odometer_sequence::{Directory, description::Page};

use super::parse::{MAX_LIMIT, NamesQuery};
use crate::access::right::Right;
use crate::calls::beginnings::beginnings;
use crate::calls::caller::Caller;
use crate::calls::problem::{Code, Problem};

/// The most pages of names that one call looks through.
const MAX_PAGES: usize = 20;

/// Reads a page of the names that a caller may look at.
///
/// A name that the caller may not look at is never the end of a page, so `next` does not tell it.
///
/// # Errors
/// The caller may look at no name at all, or at none of the many names that come next, or the store
/// did not answer.
pub(crate) async fn page(
    directory: &Directory,
    caller: &Caller,
    asked: &NamesQuery,
) -> Result<Page, Problem> {
    let Some(role) = caller.role().filter(|role| !role.may_all(Right::Look)) else {
        let page = directory.list(&asked.filter, &asked.after, asked.limit);
        return Ok(page.await?);
    };
    let globs = role.globs(Right::Look);
    if globs.is_empty() {
        return Err(caller.refusal(Right::Look, "any name"));
    }
    let limit = usize::try_from(asked.limit).unwrap_or(usize::MAX);
    let (mut sequences, mut n_pages) = (Vec::new(), 0);
    for prefix in beginnings(globs, &asked.filter) {
        let mut after = asked.after.clone();
        // All names with this beginning come before.
        if prefix < after.as_str() && !after.starts_with(prefix) {
            continue;
        }
        while sequences.len() <= limit && n_pages < MAX_PAGES {
            n_pages += 1;
            let page = directory.list(prefix, &after, MAX_LIMIT).await?;
            let all = page.sequences.into_iter();
            sequences.extend(all.filter(|listed| caller.may(Right::Look, &listed.name)));
            let Some(next) = page.next else {
                break;
            };
            next.as_str().clone_into(&mut after);
        }
    }
    let has_more = sequences.len() > limit || n_pages == MAX_PAGES;
    sequences.truncate(limit);
    let last = sequences.last().map(|last| last.name.clone());
    if has_more && last.is_none() {
        return Err(Problem::new(
            Code::InvalidParameter,
            "You may look at none of the many names that come next; give a longer `prefix`, or a \
             later `after`.",
        ));
    }
    Ok(Page {
        next: last.filter(|_| has_more),
        sequences,
    })
}
