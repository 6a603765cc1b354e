//! The author's tools: what hooks are tried with, and how they come to a cluster.
//!
//! Nothing here decides: requests are written, answers read and plans made by `metahook_core`, as the server has it do, and
//! modules are called by [`metahook_server::hook::wasm`]. Without a cluster:
//!
//! - `documents`, `folders`, `yaml`, `kinds`, `schemas`: files, and what is known of the objects in them
//! - `build_command`, `hook_modules`, `sandbox`, `call`, `request_kinds`: hooks of files, and their requests and answers
//! - `render`, `cases`, `properties`, `line_diff`: plans of objects in files, compared with what is expected
//! - `scaffold`: a new hook
//!
//! On a cluster:
//!
//! - `pack`: modules as they are stored
//! - `deploy`: bundles of an author's files
//! - `dev`: a session of an author's server
//! - `controllers`, `object_names`, `pause`, `status`, `history`, `kept_places`, `rollback`: controllers and objects by name; objects left alone for a while;
//!   how the controllers stand; the way back to an earlier version
//! - `diff`, `record`, `stored_hooks`: what hooks would change in the cluster, by dry runs alone; its parents as cases
//! - `explain`: the latest reconciles of an object, with their reasons
//! - `dashboard`: how controllers stand and what was done, as pages for a browser
//!
//! - `progress`: steps of commands that take long, told on a terminal

pub mod build_command;
pub mod call;
pub mod cases;
pub mod controllers;
pub mod dashboard;
pub mod deploy;
pub mod dev;
pub mod diff;
pub mod documents;
pub mod explain;
pub mod folders;
pub mod history;
pub mod hook_modules;
pub mod inspected_server;
mod kept_places;
pub mod kinds;
pub mod line_diff;
mod object_names;
pub mod pack;
pub mod pause;
pub mod progress;
pub mod properties;
pub mod record;
pub mod render;
pub mod replay;
pub mod request_kinds;
pub mod rollback;
pub mod sandbox;
pub mod scaffold;
pub mod schemas;
pub mod status;
mod stored_hooks;
mod version_figures;
pub mod yaml;
