//! Kinds of hooks by how they are called, and the questions in which they differ.

/// How a hook is called: a module, a component or a script in the server's sandbox, or a webhook over the network.
///
/// A new variant needs an answer to each question that a method below asks, and its own value wherever the two kinds have
/// different ones: bounds, fingerprints, words of errors. All of these are a `match` without `_`, so that the compiler names
/// them. Ask one of the methods, or add a question; a test with `==` or `matches!` decides about new kinds unseen. The section
/// "A kind of hook" in `runtime/ARCHITECTURE.md` has the places that the compiler does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookTransport {
    Wasm,
    Webhook,
}

impl HookTransport {
    /// Whether Metacontroller calls hooks this way, too. Then manifests and answers may do what Metacontroller lets them do: for
    /// example `null` is an answer, children of undeclared kinds are created, a selector may exclude labels only, and an unknown
    /// field is no Event. Otherwise each of these is an error or an Event.
    pub fn follows_metacontroller(self) -> bool {
        match self {
            Self::Wasm => false,
            Self::Webhook => true,
        }
    }

    /// Whether the server runs the hook itself, in its sandbox. Then the server sees whether an answer depends on the request
    /// alone, and no network can keep the next answer away.
    pub fn runs_in_sandbox(self) -> bool {
        match self {
            Self::Wasm => true,
            Self::Webhook => false,
        }
    }

    /// Whether the hook may be shown Secrets of all namespaces though its controller has no account of its own. Otherwise it is
    /// shown those in the namespaces of `--mount-secret-namespaces`.
    pub fn is_shown_all_secrets(self) -> bool {
        match self {
            Self::Wasm => false,
            Self::Webhook => true,
        }
    }
}
