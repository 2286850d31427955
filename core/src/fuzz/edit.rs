//! Changes a text that must be taken in one place. Then a reader refuses it, or it says something
//! else.

use proptest::{prelude::*, sample::Index};

/// Characters that some reader knows, and others.
const CHARACTERS: &str = "0129aAzZ.-_:*?[]{}!%+ W\u{e9}\0";

/// A change of one character of a text: one that is left out, doubled, or replaced.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    Leave(Index),
    Double(Index),
    Replace(Index, Index),
}

/// Makes any change.
pub(crate) fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        any::<Index>().prop_map(Edit::Leave),
        any::<Index>().prop_map(Edit::Double),
        (any::<Index>(), any::<Index>()).prop_map(|(at, by)| Edit::Replace(at, by)),
    ]
}

/// Returns the text with the change. An empty text stays empty.
pub(crate) fn edited(text: &str, edit: &Edit) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    if characters.is_empty() {
        return String::new();
    }
    let n = characters.len();
    match edit {
        Edit::Leave(at) => {
            characters.remove(at.index(n));
        }
        Edit::Double(at) => characters.insert(at.index(n), characters[at.index(n)]),
        Edit::Replace(at, by) => {
            let others: Vec<char> = CHARACTERS.chars().collect();
            characters[at.index(n)] = others[by.index(others.len())];
        }
    }
    characters.into_iter().collect()
}
