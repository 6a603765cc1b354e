//! A controller with a ServiceAccount of its own can do what that one may, and nothing else.

pub(crate) mod account_changes;
pub(crate) mod account_reads;
pub(crate) mod account_roles;
pub(crate) mod account_writes;
mod kit;

use crate::runner::{Test, tests};

pub(crate) fn all() -> Vec<Test> {
    let apart = tests![
        account_roles::{
            c29_the_right_that_a_guard_of_owners_asks_for_is_named,
        },
    ];
    let tests = tests![
        account_roles::{
            rights_that_the_server_lacks_are_named_before_there_is_a_parent,
            controllers_work_where_their_status_may_not_be_written,
            a_controller_does_what_the_printed_roles_of_its_account_allow,
        },
        account_changes::{
            a_controller_goes_on_until_its_new_account_may_start_it,
            a_controller_that_is_resumed_as_another_account_is_that_account_at_once,
        },
        account_writes::{
            a_webhook_decides_within_the_rights_of_its_controllers_account,
            related_objects_are_deleted_with_the_rights_of_the_controllers_account,
            a_child_that_may_not_be_updated_is_made_anew_only_where_it_is_known_to_have_changed,
            a_decorator_writes_within_the_rights_of_its_account,
        },
        account_reads::{
            related_objects_are_those_that_its_controllers_account_may_read,
            a_hook_is_shown_only_what_its_controllers_account_may_read,
        },
    ];
    tests.into_iter().chain(apart.into_iter().map(Test::apart)).collect()
}
