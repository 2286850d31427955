//! Says what a sequence is created from if its name has no definition: the templates, in their
//! order.

use std::sync::Arc;

use thiserror::Error;

use crate::{definition::Definition, glob::Glob, name::SequenceName};

/// Bounds the number of templates, because each new name is compared with every template.
const MAX: usize = 1000;

/// The templates in their order, and the default after them. Clones share the templates.
#[derive(Clone, Debug)]
pub struct Templates {
    rules: Arc<[TemplateRule]>,
    /// The definition of a name that fits no template. It also fills the fields that a definition
    /// leaves out if its name fits no template.
    default: Arc<Definition>,
    /// Whether the first call for a number creates a name that fits no template.
    creates_others: bool,
}

/// One template: a glob, and what the names that fit it get.
#[derive(Clone, Debug)]
pub struct TemplateRule {
    pub glob: Glob,
    pub template: Template,
}

/// The outcome of a template for a new name.
#[derive(Clone, Debug, PartialEq)]
pub enum Template {
    /// A sequence of its own. All names of one template share one copy of the definition in memory.
    Definition(Arc<Definition>),
    /// No sequence of its own: its callers get numbers of this sequence.
    Share(SequenceName),
}

/// The decision about a name.
#[derive(Clone, Copy, Debug)]
pub enum TemplateChoice<'a> {
    /// The first template that fits, and its index, counted from 0.
    Rule(usize, &'a TemplateRule),
    /// No template fits, and `[default]` applies.
    Default,
    /// No template fits, but a template names the sequence in `share`. `[default]` applies, even if
    /// names that fit no template are rejected.
    Shared,
    /// No template fits, and names that fit no template are rejected.
    Refused,
}

/// Says why templates contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct TemplatesError {
    place: Option<(usize, &'static str)>,
    reason: String,
}

impl Template {
    /// Returns the sequence whose numbers the names get; `None` if each has a sequence of its own.
    fn shared(&self) -> Option<&SequenceName> {
        match self {
            Self::Definition(_) => None,
            Self::Share(target) => Some(target),
        }
    }
}

impl TemplatesError {
    /// Returns the index of the wrong template and its wrong field; `None` if there are too many
    /// templates.
    pub fn place(&self) -> Option<(usize, &'static str)> {
        self.place
    }
}

impl Default for Templates {
    /// Creates every name with the default definition of the API.
    fn default() -> Self {
        Self {
            rules: Arc::default(),
            default: Arc::default(),
            creates_others: true,
        }
    }
}

impl Templates {
    /// Creates the templates.
    ///
    /// `default` is for names that fit no template. `creates_others` says whether the first call
    /// for a number creates such names.
    ///
    /// # Errors
    /// [`TemplatesError`] if two globs are equal, if the target of a `share` is itself shared, or
    /// if there are too many templates.
    pub fn new(
        rules: Vec<TemplateRule>,
        default: Arc<Definition>,
        creates_others: bool,
    ) -> Result<Self, TemplatesError> {
        let n_templates = rules.len();
        if n_templates > MAX {
            return Err(TemplatesError {
                place: None,
                reason: format!(
                    "there are {n_templates}; give at most {MAX}, with globs for names that are \
                     alike"
                ),
            });
        }
        for (second, rule) in rules.iter().enumerate() {
            let mut earlier = rules.iter().take(second);
            if let Some(first) = earlier.position(|earlier| earlier.glob == rule.glob) {
                return Err(TemplatesError {
                    place: Some((second, "match")),
                    reason: format!(
                        "template[{first}] has the glob \"{}\", too, so template[{second}] would \
                         never be used; give one of the two another one, or leave it out",
                        rule.glob
                    ),
                });
            }
        }
        let templates = Self {
            rules: rules.into(),
            default,
            creates_others,
        };
        match templates.chain() {
            Some(chain) => Err(chain),
            None => Ok(templates),
        }
    }

    /// Returns the definition of `[default]`.
    pub fn default_definition(&self) -> &Definition {
        &self.default
    }

    /// Finds the first `share` whose target would itself share another sequence.
    fn chain(&self) -> Option<TemplatesError> {
        self.rules.iter().enumerate().find_map(|(index, rule)| {
            let target = rule.template.shared()?;
            let TemplateChoice::Rule(by, found) = self.choice(target) else {
                return None;
            };
            let further = found.template.shared()?;
            Some(TemplatesError {
                place: Some((index, "share")),
                reason: format!(
                    "\"{target}\" is itself to share \"{further}\", by template[{by}] with the \
                     glob \"{}\"; share that one, or put a template for \"{target}\" before it",
                    found.glob
                ),
            })
        })
    }

    /// Decides about a name: the first template whose glob fits, else `[default]`.
    ///
    /// A `share` does not apply to its own target. The other templates are searched for the target.
    /// The target is created even if names that fit no template are rejected.
    pub fn choice(&self, name: &SequenceName) -> TemplateChoice<'_> {
        let names_it = |rule: &TemplateRule| rule.template.shared() == Some(name);
        let rules = self.rules.iter().enumerate();
        let mut fitting = rules.filter(|(_, rule)| !names_it(rule) && rule.glob.fits(name));
        if let Some((index, rule)) = fitting.next() {
            return TemplateChoice::Rule(index, rule);
        }
        let is_shared = self.rules.iter().any(names_it);
        match (self.creates_others, is_shared) {
            (true, _) => TemplateChoice::Default,
            (false, true) => TemplateChoice::Shared,
            (false, false) => TemplateChoice::Refused,
        }
    }

    /// Returns what a new name gets; `None` if the name is refused.
    pub fn of(&self, name: &SequenceName) -> Option<Template> {
        match self.choice(name) {
            TemplateChoice::Rule(_, rule) => Some(rule.template.clone()),
            TemplateChoice::Default | TemplateChoice::Shared => {
                Some(Template::Definition(Arc::clone(&self.default)))
            }
            TemplateChoice::Refused => None,
        }
    }

    /// Returns the definition with which the first call for a number creates this name.
    ///
    /// `None` if the call creates no sequence: the name is refused, or it shares another sequence.
    pub fn created_with(&self, name: &SequenceName) -> Option<Arc<Definition>> {
        match self.of(name)? {
            Template::Definition(definition) => Some(definition),
            Template::Share(_) => None,
        }
    }

    /// Returns the definition that fills the fields which a new definition of this name leaves out.
    pub fn behind(&self, name: &SequenceName) -> Arc<Definition> {
        self.created_with(name)
            .unwrap_or_else(|| Arc::clone(&self.default))
    }

    /// Finds templates that no name can get, each with the earlier template that fits all its
    /// names, and both with their places.
    ///
    /// It finds them only if the earlier glob has one `*`, at its end, and no other special
    /// character.
    pub fn never_used(&self) -> Vec<[(usize, &TemplateRule); 2]> {
        let rules = || self.rules.iter().enumerate();
        let covered = rules().filter_map(|(index, rule)| {
            let mut before = rules().take(index);
            // A `share` does not apply to its target, so it never covers all names.
            let by = before.find(|(_, earlier)| {
                earlier.template.shared().is_none() && earlier.glob.fits_all_of(&rule.glob)
            });
            by.map(|by| [(index, rule), by])
        });
        covered.collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn name(text: &str) -> SequenceName {
        SequenceName::parse(text).unwrap()
    }

    fn definition(start: i64) -> Arc<Definition> {
        Arc::new(Definition {
            start,
            ..Definition::default()
        })
    }

    fn counted(glob: &str, start: i64) -> TemplateRule {
        TemplateRule {
            glob: Glob::parse(glob).unwrap(),
            template: Template::Definition(definition(start)),
        }
    }

    fn sharing(glob: &str, target: &str) -> TemplateRule {
        TemplateRule {
            glob: Glob::parse(glob).unwrap(),
            template: Template::Share(name(target)),
        }
    }

    fn templates(
        rules: Vec<TemplateRule>,
        creates_others: bool,
    ) -> Result<Templates, TemplatesError> {
        Templates::new(rules, definition(7), creates_others)
    }

    fn start(templates: &Templates, of: &str) -> Option<i64> {
        templates
            .created_with(&name(of))
            .map(|definition| definition.start)
    }

    #[test]
    fn the_first_template_that_fits_decides() {
        let rules = || vec![counted("or*", 1), counted("orders", 2), counted("i*", 3)];
        let open = templates(rules(), true).unwrap();
        let strict = templates(rules(), false).unwrap();
        for (text, created, created_strictly) in [
            ("orders", Some(1), Some(1)),
            ("invoices", Some(3), Some(3)),
            ("others", Some(7), None),
            ("Orders", Some(7), None),
        ] {
            assert_eq!(start(&open, text), created, "{text}");
            assert_eq!(start(&strict, text), created_strictly, "{text}");
            let behind = open.behind(&name(text)).start;
            assert_eq!(behind, strict.behind(&name(text)).start, "{text}");
        }
    }

    #[test]
    fn names_of_one_template_share_one_copy() {
        let templates = templates(vec![counted("t*", 1)], true).unwrap();
        for (one, other) in [("t1", "t2"), ("x", "y")] {
            let one = templates.created_with(&name(one)).unwrap();
            let other = templates.created_with(&name(other)).unwrap();
            assert!(Arc::ptr_eq(&one, &other));
        }
    }

    #[test]
    fn what_is_shared_is_created_from_what_comes_after() {
        let small = |more: Vec<TemplateRule>, creates_others| {
            let mut rules = vec![sharing("small-*", "small-all"), sharing("x*", "misc")];
            rules.extend(more);
            templates(rules, creates_others).unwrap()
        };
        for creates_others in [true, false] {
            let bare = small(Vec::new(), creates_others);
            assert_eq!(
                bare.of(&name("small-1")),
                Some(Template::Share(name("small-all")))
            );
            assert_eq!(bare.created_with(&name("small-1")), None);
            assert_eq!(bare.behind(&name("small-1")).start, 7);
            // A template names this sequence, so the name is not a typing error.
            assert_eq!(start(&bare, "small-all"), Some(7));
            assert_eq!(start(&bare, "misc"), Some(7));
            assert_eq!(start(&bare, "other"), creates_others.then_some(7));
            let defined = small(vec![counted("*all", 4), counted("misc", 5)], creates_others);
            assert_eq!(start(&defined, "small-all"), Some(4));
            assert_eq!(start(&defined, "misc"), Some(5));
        }
    }

    fn never_used(templates: &Templates) -> Vec<(usize, usize)> {
        let never_used = templates.never_used().into_iter();
        never_used
            .map(|[(index, _), (by, _)]| (index, by))
            .collect()
    }

    #[test]
    fn a_template_behind_one_that_fits_all_its_names_is_never_used() {
        for (globs, expected) in [
            (&["a*", "b*", "*"][..], &[][..]),
            (
                &["a*", "ab*", "a", "ba*", "*", "x?"],
                &[(1, 0), (2, 0), (5, 4)],
            ),
            (&["a?*", "ab*"], &[]),
            (&["a*", "?a*", "[a]*"], &[]),
            (&["ab*", "a*"], &[]),
        ] {
            let rules = globs.iter().map(|glob| counted(glob, 1)).collect();
            let templates = templates(rules, true).unwrap();
            assert_eq!(never_used(&templates), expected, "{globs:?}");
        }
        // The shared sequence itself gets the second template.
        let rules = vec![sharing("s*", "s-all"), counted("s-all", 1)];
        assert_eq!(never_used(&templates(rules, true).unwrap()), []);
    }

    #[test]
    fn templates_that_contradict_each_other_are_refused() {
        let equal = vec![counted("a*", 1), sharing("b*", "c"), counted("a*", 1)];
        let refused = templates(equal, true).unwrap_err();
        assert_eq!(refused.place(), Some((2, "match")));
        let sentence = refused.to_string();
        for part in ["template[0]", "template[2]", "\"a*\""] {
            assert!(sentence.contains(part), "{sentence}");
        }

        for (rules, at) in [
            (vec![sharing("a*", "b"), sharing("b*", "c")], 0),
            (vec![sharing("b*", "c"), sharing("a*", "bb")], 1),
            // Two templates share the names of each other.
            (vec![sharing("a*", "b1"), sharing("b*", "a1")], 0),
            // Besides its own glob, `s2` fits the second glob first.
            (vec![sharing("s?", "s2"), sharing("s*", "t")], 0),
        ] {
            let refused = templates(rules, true).unwrap_err();
            assert!(
                refused.to_string().contains("is itself to share"),
                "{refused}"
            );
            assert_eq!(refused.place(), Some((at, "share")), "{refused}");
        }
        // With a definition before it, the `share` is no chain.
        let fixed = vec![sharing("a*", "b"), counted("b", 1), sharing("b*", "c")];
        assert!(templates(fixed, true).is_ok());

        let many = (0..=MAX).map(|n| counted(&format!("a{n}"), 1)).collect();
        let refused = templates(many, true).unwrap_err();
        assert_eq!(refused.place(), None);
        let sentence = refused.to_string();
        assert!(
            sentence.contains(&format!("there are {};", MAX + 1)),
            "{sentence}"
        );
    }
}
