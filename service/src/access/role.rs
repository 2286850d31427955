//! Says what the callers of a role may do.

use std::sync::Arc;

use odometer_core::{glob::Glob, name::SequenceName};

use super::quotas::Quotas;
use super::right::Right;

/// The most roles, because each refusal is counted by role.
pub const MAX_ROLES: usize = 64;

/// A set of rights that callers share.
#[derive(PartialEq, Eq, Debug)]
pub struct Role {
    name: Arc<str>,
    /// The globs of each right, in the order of [`Right::ALL`].
    globs: [Vec<Glob>; Right::ALL.len()],
    quotas: Quotas,
}

/// The roles of the configuration.
#[derive(Clone, Default, Debug)]
pub struct Roles(Vec<Arc<Role>>);

impl Role {
    /// Creates a role without rights, and with the quotas that a role has if nothing is said.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            globs: Default::default(),
            quotas: Quotas::default(),
        }
    }

    /// Returns the role with one right more: `right` on the names that fit one of `globs`.
    pub fn with(mut self, right: Right, globs: Vec<Glob>) -> Self {
        if let Some(of_right) = self.globs.get_mut(right as usize) {
            *of_right = globs;
        }
        self
    }

    /// Returns the role with other quotas.
    pub fn with_quotas(mut self, quotas: Quotas) -> Self {
        self.quotas = quotas;
        self
    }

    /// Returns what the callers of the role can use up.
    #[inline]
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Returns the name of the role.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the globs of a right. A right without globs is on no name.
    pub fn globs(&self, right: Right) -> &[Glob] {
        self.globs.get(right as usize).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the role has a right on a name.
    pub fn may(&self, right: Right, name: &SequenceName) -> bool {
        self.globs(right).iter().any(|glob| glob.fits(name))
    }

    /// Returns whether the role has a right on all names, by the glob `*`.
    pub fn may_all(&self, right: Right) -> bool {
        self.globs(right).iter().any(Glob::fits_all)
    }
}

impl Roles {
    /// Adds a role.
    pub fn add(&mut self, role: Role) {
        self.0.push(Arc::new(role));
    }

    /// Returns the role with this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&Arc<Role>> {
        self.0.iter().find(|role| *role.name == *name)
    }

    /// Returns all roles.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.0.iter()
    }

    /// Returns the names of all roles, as a sentence lists them.
    pub fn names(&self) -> String {
        let names = self.0.iter().map(|role| format!("{:?}", role.name));
        names.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_on_the_names_that_fit_one_of_its_globs() {
        let glob = |text| Glob::parse(text).unwrap();
        let role = Role::new("billing")
            .with(Right::Take, vec![glob("orders"), glob("invoice-*")])
            .with(Right::Look, vec![glob("a*"), glob("*")]);
        let may = |right, name| role.may(right, &SequenceName::parse(name).unwrap());
        assert!(may(Right::Take, "orders") && may(Right::Take, "invoice-7"));
        assert!(!may(Right::Take, "orders2") && !may(Right::Block, "orders"));
        assert!(may(Right::Look, "zebra"));
        assert!(role.may_all(Right::Look) && !role.may_all(Right::Take));
        assert!(!role.may_all(Right::Define), "no glob is on no name");
    }
}
