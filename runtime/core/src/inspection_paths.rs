//! Paths of a server's inspection address, for the server and for the commands that ask it.
//!
//! An answer may get new fields. Where an older command could not read it any more, its path gets another version, and the path
//! before is one of [`WITHDRAWN`]: each side then tells a user which of the two is too old.

/// The latest reconciles of an object.
pub const RECONCILES: &str = "/v1/reconciles";

/// How a controller stands.
pub const CONTROLLER: &str = "/v1/controller";

/// Counts of the controllers of a kind.
pub const CONTROLLERS: &str = "/v2/controllers";

/// A page of the list of a controller's parents.
pub const PARENTS: &str = "/v1/parents";

/// The reconciles of a controller that come.
pub const RECORDING: &str = "/v1/recording";

pub const ALL: [&str; 5] = [RECONCILES, CONTROLLER, CONTROLLERS, PARENTS, RECORDING];

/// Paths that older commands ask for, whose answers they could not read.
pub const WITHDRAWN: [&str; 1] = ["/v1/controllers"];
