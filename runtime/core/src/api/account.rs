//! ServiceAccount whose rights bound a controller.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::SpecError;

/// A ServiceAccount: what the controller writes, and what its modules are made of, is written and read with its rights.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ServiceAccountRef {
    pub namespace: String,
    pub name: String,
}

impl ServiceAccountRef {
    /// # Errors
    /// A name that no ServiceAccount has.
    pub fn check(&self, field: &str) -> Result<(), SpecError> {
        for (part, text) in [("namespace", &self.namespace), ("name", &self.name)] {
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
            if text.is_empty() || !text.chars().all(allowed) {
                let problem = format!("{text:?} is no name: lower case letters, digits, dashes and dots");
                return Err(SpecError::new(format!("{field}.{part}"), problem));
            }
        }
        Ok(())
    }

    /// Its user name at the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// As messages name it: `hello/greeter`.
impl fmt::Display for ServiceAccountRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_a_user_and_has_a_name_that_fits_into_one() {
        let account = |namespace: &str, name: &str| ServiceAccountRef {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        assert_eq!(account("hello", "greeter").user(), "system:serviceaccount:hello:greeter");
        assert_eq!(account("hello", "a.b-1").check("f"), Ok(()));
        for (account, says) in [
            (account("", "x"), "f.namespace: \"\" is no name"),
            (account("n", ""), "f.name: \"\" is no name"),
            (account("n", "x:y"), "f.name: \"x:y\" is no name"),
            (account("n\r\nx", "y"), "f.namespace: "),
        ] {
            assert!(account.check("f").unwrap_err().to_string().starts_with(says));
        }
    }
}
