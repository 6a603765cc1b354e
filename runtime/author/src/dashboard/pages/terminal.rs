//! Commands for a terminal: they ask the cluster of the page, and a shell reads them as they are meant.

use std::path::PathBuf;

use maud::{Markup, html};
use metahook_core::trace::TracedObject;

use crate::controllers::full_plural;

/// Flags that name the cluster and the servers, as the command was given them.
#[derive(Debug, Default)]
pub(crate) struct Terminal {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) context: Option<String>,
    pub(crate) server_namespace: String,
}

/// The default of `--server-namespace`.
const SERVER_NAMESPACE: &str = "metacontroller";

impl Terminal {
    /// Commands about a controller.
    pub(super) fn of_controller(&self, kind: &str, name: &str) -> Vec<String> {
        let named = quoted(&format!("{}/{name}", kind.to_lowercase()));
        vec![
            self.metahook(&format!("status {named} --watch")),
            self.metahook(&format!("diff --controller {named}")),
            self.metahook(&format!("history {named}")),
            self.kubectl(&format!("describe {named}")),
        ]
    }

    /// Commands about an object.
    pub(super) fn of_object(&self, object: &TracedObject) -> Vec<String> {
        let TracedObject { group, resource, namespace, name, .. } = object;
        let kind = quoted(&full_plural(resource, group));
        let flag = if namespace.is_empty() { String::new() } else { format!("-n {} ", quoted(namespace)) };
        vec![
            self.metahook(&format!("explain --follow {kind} {}", quoted(&object.key().to_string()))),
            self.kubectl(&format!("{flag}describe {kind} {}", quoted(name))),
        ]
    }

    /// Commands about the calls of a parent's hooks.
    pub(super) fn of_calls(&self, (kind, controller): (&str, &str), parent: &TracedObject) -> Vec<String> {
        let named = quoted(&format!("{}/{controller}", kind.to_lowercase()));
        let place = quoted(&parent.key().to_string());
        vec![
            self.metahook(&format!("record --controller {named} {place} --reconciles 5 -o calls.recording")),
            "metahook replay calls.recording".to_owned(),
        ]
    }

    fn metahook(&self, command: &str) -> String {
        let namespace = &self.server_namespace;
        let is_default = namespace.is_empty() || namespace == SERVER_NAMESPACE;
        let flag =
            if is_default { String::new() } else { format!(" --server-namespace {}", quoted(namespace)) };
        format!("metahook {command}{}{flag}", self.cluster_flags())
    }

    fn kubectl(&self, command: &str) -> String {
        format!("kubectl {command}{}", self.cluster_flags())
    }

    fn cluster_flags(&self) -> String {
        let kubeconfig = self
            .kubeconfig
            .as_ref()
            .map(|file| format!(" --kubeconfig {}", quoted(&file.display().to_string())));
        let context = self.context.as_ref().map(|context| format!(" --context {}", quoted(context)));
        [kubeconfig, context].into_iter().flatten().collect()
    }
}

/// Commands that show more, or do something about it.
pub(super) fn commands(lines: &[String]) -> Markup {
    html! {
        section .commands {
            h2 { "In a terminal" }
            pre tabindex="0" role="region" aria-label="Commands for a terminal" {
                @for line in lines { code { (line) } "\n" }
            }
        }
    }
}

/// A word as a POSIX shell reads it: names of some kinds may have spaces, quotes, `$` and `;` in them.
fn quoted(word: &str) -> String {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "-_./:@,+=".contains(one);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_each_word_as_it_is() {
        let words = ["plain-1.example.com/a:b", "", "a b", "it's", "$(id)", "a;b", "`id`", "a\nb", "~", "*"];
        for word in words {
            let script = format!("printf %s {}", quoted(word));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
        assert_eq!(quoted("plain-1.example.com/a:b"), "plain-1.example.com/a:b");
    }

    #[test]
    fn commands_ask_the_cluster_of_the_page() {
        let plain = Terminal { server_namespace: SERVER_NAMESPACE.to_owned(), ..Terminal::default() };
        let lines = plain.of_controller("CompositeController", "c");
        assert_eq!(lines[0], "metahook status compositecontroller/c --watch");
        assert_eq!(lines[3], "kubectl describe compositecontroller/c");
        let given = Terminal {
            kubeconfig: Some(PathBuf::from("/home/me/my configs/k")),
            context: Some("prod".to_owned()),
            server_namespace: "hooks".to_owned(),
        };
        let object = TracedObject {
            group: "rbac.authorization.k8s.io".into(),
            resource: "clusterroles".into(),
            kind: "ClusterRole".into(),
            namespace: "".into(),
            name: "a; rm b".into(),
        };
        let flags = "--kubeconfig '/home/me/my configs/k' --context prod";
        let kind = "clusterroles.rbac.authorization.k8s.io";
        assert_eq!(
            given.of_object(&object),
            [
                format!("metahook explain --follow {kind} 'a; rm b' {flags} --server-namespace hooks"),
                format!("kubectl describe {kind} 'a; rm b' {flags}"),
            ]
        );
    }
}
