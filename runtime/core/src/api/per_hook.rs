//! The hooks of a controller by name, and one value for each of them.

use std::convert::Infallible;
use std::fmt;

/// The hooks that a controller may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookName {
    Sync,
    Finalize,
    Customize,
}

impl HookName {
    /// Its name in the spec, in a hook's arguments, in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Finalize => "finalize",
            Self::Customize => "customize",
        }
    }
}

impl fmt::Display for HookName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One value for each hook that a controller has; a controller without a sync hook does not run.
#[derive(Debug, Clone, PartialEq)]
pub struct PerHook<T> {
    pub sync: T,
    pub finalize: Option<T>,
    pub customize: Option<T>,
}

impl<T> PerHook<T> {
    pub fn get(&self, name: HookName) -> Option<&T> {
        match name {
            HookName::Sync => Some(&self.sync),
            HookName::Finalize => self.finalize.as_ref(),
            HookName::Customize => self.customize.as_ref(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (HookName, &T)> {
        [HookName::Sync, HookName::Finalize, HookName::Customize]
            .into_iter()
            .filter_map(|name| Some((name, self.get(name)?)))
    }

    /// # Errors
    /// The first one that `each` gives.
    pub fn try_map<U, E>(&self, mut each: impl FnMut(HookName, &T) -> Result<U, E>) -> Result<PerHook<U>, E> {
        Ok(PerHook {
            sync: each(HookName::Sync, &self.sync)?,
            finalize: self.finalize.as_ref().map(|hook| each(HookName::Finalize, hook)).transpose()?,
            customize: self.customize.as_ref().map(|hook| each(HookName::Customize, hook)).transpose()?,
        })
    }

    pub fn map<U>(&self, mut each: impl FnMut(HookName, &T) -> U) -> PerHook<U> {
        let Ok(all) = self.try_map(|name, hook| Ok::<_, Infallible>(each(name, hook)));
        all
    }
}
