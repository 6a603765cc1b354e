//! Which tests have a server with all rights, and why: that of all others has the rights of the manifests, and for each controller those
//! that `metahook rbac` prints.

use crate::runner::Test;

/// The server asks for kinds that no spec declares.
const KINDS_OF_HOOKS: &str = "only the hook knows which kinds it asks for, and users grant them by hand";
const OWN_ACCOUNTS: &str = "the test has accounts of its own";
const FILES: &str = "kubectl applies the files of the docs, which have no roles in them";
const PARTS: &str = "the parts of a module are not named in the spec";
const OWN_PROXY: &str = "its proxy has a kubeconfig of its own";
const REFUSED: &str = "no roles are printed for a spec that is refused";

/// Modules of tests, or single tests.
const ALL_RIGHTS: [(&str, &str); 30] = [
    ("customize_", KINDS_OF_HOOKS),
    ("cases_decorators::c35_", KINDS_OF_HOOKS),
    ("record::secrets_are_recorded_without_their_values", KINDS_OF_HOOKS),
    ("diff_states::deletions_of_related_objects_are_shown", KINDS_OF_HOOKS),
    ("decorator_hooks::related_objects_are_shown_and_followed", KINDS_OF_HOOKS),
    ("decorators_together::what_an_older_decorator_gives_up_the_younger_has_at_once", KINDS_OF_HOOKS),
    ("event_rows::what_goes_well_is_no_event", KINDS_OF_HOOKS),
    ("parent_reconcile::unmanaged_children_of_webhooks_are_created_once_and_reported", KINDS_OF_HOOKS),
    ("parent_revisions::each_state_of_a_parent_has_the_related_objects_that_it_asks_for", KINDS_OF_HOOKS),
    ("render::config_restart_is_rendered_as_the_server_writes_it", KINDS_OF_HOOKS),
    ("related_deletion::decorators_delete_by_the_same_rules", KINDS_OF_HOOKS),
    ("packed::parts_are_waited_for_and_two_versions_are_never_mixed", PARTS),
    ("packed::a_module_of_several_parts_is_kept_whole", PARTS),
    ("account_", OWN_ACCOUNTS),
    ("taken_rights::", OWN_ACCOUNTS),
    ("config_restart::with_an_account_it_restarts_pods_where_that_one_may_and_nowhere_else", OWN_ACCOUNTS),
    ("gallery_copies::secret_propagation_with_an_account_needs_rights_everywhere", OWN_ACCOUNTS),
    ("lifecycle::the_server_is_ready_before_controllers_can_be_listed", OWN_ACCOUNTS),
    ("mounts::rights_to_the_named_objects_alone_suffice", OWN_ACCOUNTS),
    ("immortal::the_files_of_the_guest_work_as_they_are_and_pods_go_with_their_container", FILES),
    ("apply::", "the command applies files, which have no roles in them"),
    ("tutorial::the_files_of_the_tutorial_work_as_they_are", FILES),
    ("tutorial_scripts::", "the command applies files, which have no roles in them"),
    ("crds::", REFUSED),
    ("api_objects::a_spec_that_cannot_run_says_which_field_and_hurts_no_other", REFUSED),
    ("harness::", OWN_ACCOUNTS),
    ("cases_merging::c05_", "whoever makes an aggregated role needs all rights"),
    ("conditions::each_condition_of_what_a_controller_needs", OWN_PROXY),
    ("secrecy::", OWN_PROXY),
    ("leader_election::", OWN_PROXY),
];

pub(crate) fn least_but_where_needed(tests: Vec<Test>) -> Vec<Test> {
    let needs_all = |test: &Test| ALL_RIGHTS.iter().any(|(title, _)| test.title.starts_with(title));
    tests.into_iter().map(|test| if needs_all(&test) { test } else { test.with_least_rights() }).collect()
}
