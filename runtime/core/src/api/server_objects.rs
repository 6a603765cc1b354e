//! The server's own Secrets and Leases: no hook is shown one, whatever the rights of its controller are.

use crate::object::id::{Key, Resource};
use crate::presence;

/// Name of the Secret with the key for hooks' random numbers, in the namespace of each server.
pub const SEED: &str = "metahook-seed";

/// Which objects of one kind are a server's own. They are known by their names in all namespaces, since another server of the
/// cluster may use another one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerObjects(ServerObjectKind);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum ServerObjectKind {
    #[default]
    Others,
    Secrets,
    /// Leases, with that of the election, whose name users choose.
    Leases(Option<Key>),
}

impl ServerObjects {
    /// `election`: the Lease by which this server leads.
    pub fn of(kind: &Resource, election: Option<&Key>) -> Self {
        Self(match (&*kind.gvk.group, &*kind.plural) {
            ("", "secrets") => ServerObjectKind::Secrets,
            ("coordination.k8s.io", "leases") => ServerObjectKind::Leases(election.cloned()),
            _ => ServerObjectKind::Others,
        })
    }

    pub fn has(&self, key: &Key) -> bool {
        match &self.0 {
            ServerObjectKind::Others => false,
            ServerObjectKind::Secrets => &*key.name == SEED,
            ServerObjectKind::Leases(election) => {
                election.as_ref() == Some(key) || presence::is_lease(&key.name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::id::Gvk;
    use crate::object::selector::Selector;
    use crate::presence::lease_name;

    #[test]
    fn the_seed_and_the_leases_of_servers_are_their_own() {
        let election = Key::new("mc", "leader");
        let has = |api_version: &str, plural: &str, namespace: &str, name: &str| {
            let gvk = Gvk::new(api_version, "X");
            let kind = Resource { gvk, plural: plural.into(), namespaced: true, has_status: false };
            ServerObjects::of(&kind, Some(&election)).has(&Key::new(namespace, name))
        };
        let (secrets, leases) = (("v1", "secrets"), ("coordination.k8s.io/v1", "leases"));
        for ((version, plural), namespace, name, own) in [
            (secrets, "mc", "metahook-seed", true),
            (secrets, "other", "metahook-seed", true),
            (secrets, "mc", "metahook-seeds", false),
            (leases, "mc", "leader", true),
            (leases, "n", "leader", false),
            (leases, "n", &lease_name(&Selector::default()), true),
            (leases, "n", &lease_name(&Selector::equals("a", "b")), true),
            (leases, "n", "metahook-servers-b", false),
            (leases, "mc", "metahook-seed", false),
            (("v1", "configmaps"), "mc", "metahook-seed", false),
            (("e.com/v1", "secrets"), "mc", "metahook-seed", false),
        ] {
            assert_eq!(has(version, plural, namespace, name), own, "{plural} {namespace}/{name}");
        }
    }
}
